"""Residual surfaces: rows at one point count together, and other libraries get what all have in common."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "scripts"))
import fit_surface
from fit_family import are_siblings

import perfmodel as pm
from perfmodel.prediction.latency.families import family

FAMILY = family("gemm_bf16")


def _rows(ratio: np.ndarray, sizes: np.ndarray, key: np.ndarray) -> fit_surface.Rows:
    octaves = np.vstack([sizes, sizes, sizes, np.zeros(sizes.size)])
    part = np.arange(sizes.size) % 4.0
    return fit_surface.Rows(ratio, octaves, key, part, np.full(sizes.size, 1)).at_points()


def test_rows_of_the_same_sizes_and_library_are_one_point() -> None:
    rows = _rows(np.array([0.1, 0.3, -0.2, 0.9]), np.array([3.0, 3.0, 3.0, 7.0]), np.array(["a", "a", "b", "a"]))
    points, count = rows.points()
    found = dict(zip(zip(points.key.tolist(), points.octaves[0].tolist(), strict=True), points.ratio, strict=True))
    np.testing.assert_allclose(found["a", 3.0], 0.2)
    np.testing.assert_allclose(found["b", 3.0], -0.2)
    np.testing.assert_allclose(found["a", 7.0], fit_surface.CLIP)
    assert sorted(count.tolist()) == [1.0, 1.0, 2.0]
    assert len(rows.thinned(2).points()[0]) == 2


def test_a_library_that_is_like_the_others_has_more_in_common_with_them() -> None:
    random = np.random.default_rng(0)
    sizes = np.floor(random.uniform(0.0, 14.0, 600))
    key = np.where(np.arange(600) % 2, "one", "other")
    alike, apart = 0.2 * np.sin(sizes), 0.1 * np.cos(sizes)
    for other, least, most in ((alike, 0.6, 0.67), (apart, 0.0, 0.3)):
        rows = _rows(np.where(key == "one", alike, other), sizes, key)
        found = fit_surface.fit_surface(FAMILY, "any", rows, "fitted on nothing", {}, 600)
        assert found is not None
        assert least <= found.common <= most
        at = [2.0 ** sizes[:2], 2.0 ** sizes[:2], 2.0 ** sizes[:2], np.ones(2)]
        known, unknown = (np.abs(found.at(at, found.sheet(name))) for name in ("one", "nobody's"))
        assert np.all(unknown <= known)


def test_machines_of_one_chip_are_those_with_stacked_memory() -> None:
    machines = {name: pm.hardware(name) for name in ("h100-sxm5-80gb", "h200-sxm-141gb", "l40s", "rtx-4090")}
    assert are_siblings(["h100-sxm5-80gb", "h200-sxm-141gb"], machines)
    assert not are_siblings(["l40s", "rtx-4090"], machines)
    assert not are_siblings(["h100-sxm5-80gb"], machines)
