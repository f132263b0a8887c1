"""Files of residual surfaces, and what they change: times near rows that were measured, never below the bound."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from types import MappingProxyType

import numpy as np
import pytest

import perfmodel as pm
from perfmodel.errors import InputFileError
from perfmodel.files import shipped_folder
from perfmodel.prediction.latency import surfaces
from perfmodel.prediction.latency.families import family
from perfmodel.prediction.latency.surfaces import FOLDER, read_surfaces, surface, surface_text, to_surface

NAME = "h100-sxm5-80gb"
FAMILY = family("gemm_bf16")
FILES = sorted((shipped_folder() / FOLDER).glob("*.toml"))
SIZES = {"m": 512.0, "n": 4096.0, "k": 4096.0}


def without(machine: pm.Hardware) -> pm.Hardware:
    """Return a machine with the same constants and no surface."""
    latency = {name: dataclasses.replace(table, surface=None) for name, table in machine.latency.items()}
    return dataclasses.replace(machine, latency=MappingProxyType(latency))


def product(**sizes: object) -> pm.Gemm:
    return pm.Gemm(**{**SIZES, "dtype": "bf16", **sizes})


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_a_shipped_file_is_whole_and_reads_back(path: Path) -> None:
    found = {name: to_surface(path.stem, spec, family(name), str(path)) for name, spec in read_surfaces(path).items()}
    assert surface_text(path.stem, found) == path.read_text(encoding="utf-8")
    for one in found.values():
        assert "fitted on" in one.source
        assert one.date
        for dimension, axis in enumerate(one.axes):
            for sheet in one.sheets.values():
                at = np.moveaxis(sheet.values, dimension, 0)
                # it is 0 where an axis ends beyond its data
                assert axis.highest >= axis.knots[-1] - 1e-6 or not at[-1].any()
                assert axis.first == 0.0 or not at[0].any()


def test_the_time_is_the_closed_form_times_the_surface() -> None:
    machine = pm.hardware(NAME)
    with_it, plain = (pm.predict(product(), one, library="sglang") for one in (machine, without(machine)))
    on = machine.latency["gemm_bf16"].surface
    assert on is not None
    sizes = [axis.size(product(), surfaces.Machine.of(machine, with_it.peak)) for axis in FAMILY.axes]
    factor = np.exp(on.at(sizes, on.sheet("sglang bf16", "sglang")))
    assert with_it.predicted_time_s == pytest.approx(factor * plain.predicted_time_s)
    assert with_it.predicted_terms_s["residual surface"] == pytest.approx((factor - 1.0) * plain.predicted_time_s)
    assert "residual surface fitted on" in with_it.prediction_basis
    assert "residual surface" not in plain.predicted_terms_s


def test_a_sweep_is_its_points_and_never_faster_than_the_bound() -> None:
    random = np.random.default_rng(0)
    sizes = {name: np.floor(2.0 ** random.uniform(0, 17, 300)) for name in SIZES}
    for name in (NAME, "l40s", "h100-pcie-80gb"):
        machine = pm.hardware(name)
        swept = pm.predict(product(**sizes), machine)
        assert np.all(swept.predicted_time_s >= swept.bound_time_s)
        for index in range(0, 300, 10):
            one = pm.predict(product(**{key: float(column[index]) for key, column in sizes.items()}), machine)
            for key in ("predicted_time_s", "low_s", "high_s"):
                swept_value = np.asarray(getattr(swept.estimate, key.replace("predicted_", "")))[index]
                assert swept_value == pytest.approx(getattr(one.estimate, key.replace("predicted_", "")), rel=1e-6)


def test_outside_the_data_there_is_no_correction_and_the_interval_of_the_table() -> None:
    machine = pm.hardware(NAME)
    for sizes in ({"n": 1.0}, {"k": 2.0**20}, {"m": 2.0**20}, {"batch": 64.0}):
        corrected, plain = (pm.predict(product(**sizes), one) for one in (machine, without(machine)))
        assert corrected.predicted_time_s == plain.predicted_time_s
        assert corrected.estimate.high_s == plain.estimate.high_s
    inside, plain = (pm.predict(product(), one).estimate for one in (machine, without(machine)))
    assert inside.high_s / inside.time_s < plain.high_s / plain.time_s


def test_a_dtype_that_was_not_fitted_has_no_surface() -> None:
    found = pm.predict(product(dtype="int8"), pm.hardware(NAME))
    assert "residual surface" not in found.predicted_terms_s


@pytest.mark.parametrize("name", ["l40", "../l40s", "l40s.toml"])
def test_a_file_that_is_not_there_is_named(name: str) -> None:
    with pytest.raises(InputFileError, match=r"unknown file of surfaces.*l40s") as caught:
        surface(name, FAMILY, "mine.toml: latency.gemm_bf16")
    assert "mine.toml: latency.gemm_bf16.surface" in str(caught.value)


DAMAGES = {
    "a knot is lost": ("any = '''\n0 ", "any = '''\n", "knots; the axes have"),
    "no number": ("any = '''\n0 ", "any = '''\nx ", "invalid literal"),
    "too large": ("any = '''\n0 ", "any = '''\n5000 ", "no correction is so large"),
    "another axis": ("\nk = {", "\nq = {", "has the axes"),
    "no mean": ("any = ", "all = ", "is missing"),
    "one knot": ("count = 3", "count = 1", "no axis"),
    "another key": ("penalty", "penalti", "penalti"),
    "no TOML": ("[gemm_bf16]", "[gemm_bf16", "TOML"),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_file_is_refused_in_one_message(damage: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before, after, message = DAMAGES[damage]
    text = (shipped_folder() / FOLDER / "hopper-9.0.toml").read_text(encoding="utf-8")
    assert before in text
    (tmp_path / FOLDER).mkdir()
    (tmp_path / FOLDER / "mine.toml").write_text(text.replace(before, after, 1), encoding="utf-8")
    monkeypatch.setattr(surfaces, "shipped_folder", lambda: tmp_path)
    with pytest.raises(InputFileError, match=message) as caught:
        surface("mine", FAMILY, "mine.toml: latency.gemm_bf16")
    assert "mine.toml" in str(caught.value)


def test_a_file_without_the_family_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / FOLDER).mkdir()
    text = (shipped_folder() / FOLDER / "hopper-9.0.toml").read_text(encoding="utf-8")
    (tmp_path / FOLDER / "mine.toml").write_text(text.replace("[gemm_bf16", "[gemm_fp8"), encoding="utf-8")
    monkeypatch.setattr(surfaces, "shipped_folder", lambda: tmp_path)
    with pytest.raises(InputFileError, match="no surface of gemm_bf16"):
        surface("mine", FAMILY, "mine.toml: latency.gemm_bf16")
