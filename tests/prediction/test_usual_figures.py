"""Figures that a specification leaves out: usual ones stand for them, and the interval says how unsure that is."""

from __future__ import annotations

import itertools
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType

import numpy as np
import pytest

import perfmodel as pm
from perfmodel.core.hardware import Hardware, MemoryLevel, Peak
from perfmodel.core.vocabulary import ErrorSource
from perfmodel.hardware_catalog.find import load_all
from perfmodel.hardware_catalog.write import write_spec
from perfmodel.prediction.usual_figures import FIGURES, completed, extremes, left_out, missing

#: a specification of what a press release states
BARE = Hardware(
    "bare", "Acme", "X1", (MemoryLevel("hbm", 32 * 2.0**30, 1e12),), (Peak("bf16", "tensor", 100e12),)
)  # fmt: skip
#: the same with all figures, each of them plausible
PRESS = replace(completed(BARE), sm_count=64, clocks_hz=MappingProxyType({"vector": 1.5e9, "tensor": 1.5e9}))
STREAMS = (
    pm.Elementwise(numel=10**8, dtype="bf16"), pm.LayerNorm(rows=8192, cols=4096, dtype="bf16"),
    pm.Rope(tokens=4096, heads=32, kv_heads=8, head_dim=128, dtype="bf16"),
    pm.Topk(rows=1024, cols=32000, k=8, dtype="bf16"), pm.Optimizer(parameters=10**8, dtype="fp32"),
    pm.Quantize(rows=8192, cols=8192, dtype="fp8", scale="row"), pm.BatchNorm(n=32, c=128, hw=784, dtype="bf16"),
    pm.LinearCrossEntropy(rows=4096, hidden=4096, vocab=32000, dtype="bf16"), pm.Gather(numel=10**7, dtype="bf16"),
    pm.IndexSelect(rows=8192, cols=4096, dtype="bf16"), pm.KvWrite(tokens=8192, kv_heads=8, head_dim=128, dtype="bf16"),
    pm.Memcpy(bytes=10**9, direction="d2d"), pm.Sort(cols=10**6, dtype="fp32"),
    pm.ScatterAdd(rows=8192, table=32000, cols=1024, dtype="bf16"),
    pm.CrossEntropy(rows=4096, vocab=128000, dtype="bf16"), pm.Softmax(rows=8192, cols=4096, dtype="bf16"),
    pm.Embedding(tokens=8192, vocab=32000, dim=4096, dtype="bf16"),
)  # fmt: skip
OTHERS = (
    pm.Gemm(m=4096, n=4096, k=4096, dtype="bf16"), pm.Gemm(m=1, n=4096, k=4096, dtype="bf16"),
    pm.Attention(heads=32, seq_q=2048, head_dim=128, dtype="bf16"),
)  # fmt: skip


def without(hardware: Hardware, *keys: str) -> Hardware:
    """Return a machine that nobody measured, without some of its figures."""
    lacks = {
        "chip.sm_count": {"sm_count": None},
        "chip.vector_clock": {
            "clocks_hz": MappingProxyType({}),
            "peaks": tuple(replace(peak, clock_hz=None) for peak in hardware.peaks),
        },
        "memory.l2.capacity": {"memory": tuple(one for one in hardware.memory if one.name not in ("l2", "llc"))},
        "peak.vector.fp32": {"peaks": tuple(peak for peak in hardware.peaks if peak.engine != "vector")},
        "chip.tdp": {"tdp_w": None},
    }
    for key in keys:
        hardware = replace(hardware, **lacks[key])
    return hardware


def test_no_machine_of_the_catalog_lacks_a_figure() -> None:
    assert not [(machine.name, missing(machine)) for machine in load_all() if missing(machine)]
    assert all(completed(machine) is machine for machine in load_all())


def test_usual_figures_are_those_of_the_catalog() -> None:
    """In the mean of the logarithm they are the usual figure, and four of five are within its factor."""
    keys = [figure.key for figure in FIGURES]
    for place, figure in enumerate(FIGURES):
        ratios = []
        for machine in load_all():
            if machine.kind == "gpu":
                [stated] = without_but_before(machine, keys, place)
                ratios.append(stated)
        logs = np.log(ratios)
        assert abs(np.mean(logs)) < 0.3, figure.key
        assert 0.7 <= np.mean(np.abs(logs) <= np.log(figure.off)) <= 0.95, figure.key


def without_but_before(machine: Hardware, keys: list[str], place: int) -> list[float]:
    """Return the stated figure over the usual one of a machine that states those before it."""
    stated = {
        "chip.sm_count": machine.sm_count, "chip.tdp": machine.tdp_w, "chip.vector_clock": machine.clocks_hz["vector"],
        "memory.l2.capacity": machine.caches[-1].capacity_bytes,
        "peak.vector.fp32": machine.find_peak("fp32", "vector").flop_per_s,
    }  # fmt: skip
    bare = without(machine, *keys[place:])
    return [stated[keys[place]] / FIGURES[place].usual(bare)]


@pytest.mark.parametrize("op", STREAMS, ids=lambda op: op.op)
def test_memory_bounds_what_streams_without_a_rate_of_the_vector_engine(op: pm.Operator) -> None:
    found = pm.predict(op, BARE)
    assert found.predicted_time_s >= found.bound_time_s > 0.0
    assert np.isfinite(float(found.predicted_time_high_s))
    known = pm.predict(op, completed(BARE))
    assert found.predicted_time_s == pytest.approx(float(known.predicted_time_s))
    assert found.bound_time_s <= known.bound_time_s


@pytest.mark.parametrize("op", [*STREAMS, *OTHERS], ids=lambda op: op.op)
@pytest.mark.parametrize("cache", ["cold", "warm"])
def test_to_know_less_is_never_surer(op: pm.Operator, cache: str) -> None:
    widths: list[float] = []
    ends: list[float] = []
    for keys in (
        (),
        ("memory.l2.capacity",),
        ("memory.l2.capacity", "chip.vector_clock"),
        ("memory.l2.capacity", "chip.vector_clock", "chip.sm_count"),
        ("memory.l2.capacity", "chip.vector_clock", "chip.sm_count", "chip.tdp"),
    ):
        found = pm.predict(op, without(PRESS, *keys), cache=cache)
        widths.append(float(found.estimate.spread.half_width()))
        ends.append(float(found.predicted_time_high_s))
    assert all(less >= 0.995 * more for more, less in itertools.pairwise(widths)), widths
    assert all(less >= 0.995 * more for more, less in itertools.pairwise(ends)), ends


@pytest.mark.parametrize("op", [*STREAMS, *OTHERS], ids=lambda op: op.op)
@pytest.mark.parametrize("figure", left_out(BARE), ids=lambda figure: figure.key)
def test_the_interval_reaches_what_a_plausible_figure_makes_of_it(op: pm.Operator, figure) -> None:
    found = pm.predict(op, BARE)
    for machine in (*figure.ends, *extremes(BARE)):
        known = pm.predict(op, machine)
        assert found.predicted_time_high_s >= known.predicted_time_high_s * 0.999
        assert found.predicted_time_low_s <= known.predicted_time_low_s * 1.001


def test_what_is_assumed_is_named_where_it_matters() -> None:
    sort = pm.predict(pm.Sort(cols=10**6, dtype="fp32"), BARE)
    assert "75 SMs (within a factor of 1.6)" in sort.prediction_basis
    assert ErrorSource.SPECIFICATION in set(sort.uncertainty)
    copy = pm.predict(pm.Memcpy(bytes=10**9, direction="d2d"), BARE)
    assert "SMs" not in copy.prediction_basis
    assert ErrorSource.SPECIFICATION not in set(copy.uncertainty)
    nothing = replace(completed(BARE), memory=(MemoryLevel("hbm", 32 * 2.0**30),))
    assert "no bandwidth" in pm.predict(pm.Gemm(m=64, n=64, k=64, dtype="bf16"), nothing).prediction_basis
    with pytest.raises(pm.UsageError, match=r"no rate in its specification that bounds sort"):
        pm.predict(pm.Sort(cols=10**6), nothing)


def test_a_sweep_has_the_intervals_of_its_points() -> None:
    sizes = np.array([1e4, 1e6, 1e8])
    sweep = pm.predict(pm.Elementwise(numel=sizes, dtype="bf16"), BARE, cache="warm")
    for place, size in enumerate(sizes):
        one = pm.predict(pm.Elementwise(numel=int(size), dtype="bf16"), BARE, cache="warm")
        assert sweep.predicted_time_high_s[place] == pytest.approx(float(one.predicted_time_high_s))
        assert sweep.predicted_time_low_s[place] == pytest.approx(float(one.predicted_time_low_s))
    # data that may lie in an L2 of unknown size may be faster than device memory
    assert sweep.predicted_time_low_s[1] < sweep.bound_time_s[1]


@pytest.mark.waiting
@pytest.mark.parametrize("text", ["topk", "gelu", "sort", "scan", "optimizer"])
def test_algorithms_are_compared_without_a_rate_of_the_vector_engine(text: str, perfmodel, tmp_path: Path) -> None:
    path = tmp_path / "bare.toml"
    write_spec(BARE, path)
    ran = perfmodel("analyze", text, "--algorithms", "--on", path, "--format", "json")
    assert ran.code == 0, ran.err
    assert all(row["time_s"] > 0.0 for row in ran.json["rows"])


def test_a_slow_product_is_judged_without_a_rate_of_the_vector_engine(perfmodel, tmp_path: Path) -> None:
    path = tmp_path / "bare.toml"
    write_spec(BARE, path)
    product = ("gemm", "m=4096", "n=4096", "k=4096", "dtype=bf16")
    ran = perfmodel("analyze", *product, "--measured", "50 ms", "--on", path)
    assert ran.code == 0, ran.err
    assert "vector units" not in ran.out


def test_a_figure_that_is_assumed_is_no_other_one_than_that_of_the_fit() -> None:
    h100, op = pm.hardware("h100"), pm.Gemm(m=4096, n=4096, k=4096, dtype="bf16")
    bases = [pm.predict(op, replace(h100, sm_count=count)).estimate.basis for count in (None, 66)]
    assert ["another chip" in basis for basis in bases] == [False, True]
