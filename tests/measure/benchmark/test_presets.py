"""The presets: every operator with kernels states its cases, and a run cut short has the most important rows."""

from __future__ import annotations

from collections import Counter
from types import SimpleNamespace

import pytest

pytest.importorskip("torch")

from perfmodel.accuracy.own_rows import FEWEST_ROWS
from perfmodel.hardware_catalog import hardware
from perfmodel.kernels import registry
from perfmodel.kernels.cases import BenchmarkCases
from perfmodel.kernels.registry import Kernel, benchmark_cases, operators_with_kernels
from perfmodel.measure.benchmark import presets
from perfmodel.measure.benchmark.jobs import Job, first_supported, points, without_repeats
from perfmodel.operators.gemm import Gemm
from perfmodel.operators.parse import parse_operators
from perfmodel.plugins import Plugin
from perfmodel.prediction.ceilings import resolve_peak
from perfmodel.prediction.latency.families import families_of
from perfmodel.prediction.latency.machine import Machine
from perfmodel.prediction.predict import predict

L2_BYTES = 60 * 2**20


@pytest.mark.parametrize("kind", ["cpu", "cuda"])
def test_every_operator_with_kernels_is_in_the_full_preset_and_the_quick_one_stays_short(kind):
    full, quick = (parse_operators(presets.preset(name, kind).tokens(L2_BYTES)) for name in ("full", "quick"))
    assert {op.op for op in full} == set(operators_with_kernels())
    core = {"gemm", "elementwise", "layer_norm", "rms_norm", "softmax", "reduction", "attention"}
    assert core <= {op.op for op in quick} <= {op.op for op in full}
    assert len(quick) < 40


@pytest.mark.parametrize("cache_bytes", [1e6, 36e6, 256e6])
@pytest.mark.parametrize(("name", "kind"), [("quick", "cpu"), ("full", "cpu"), ("quick", "cuda")])
def test_presets_reach_beyond_every_cache(name, kind, cache_bytes):
    ops = parse_operators(presets.preset(name, kind).tokens(cache_bytes))
    traffic = [float(point.work().bytes) for op in ops for point in points(op)]
    assert max(traffic) >= 4 * cache_bytes


def _families(library_only):
    """Count the rows of each latency family and dtype in the full preset of a GPU."""
    machine = hardware("h200")
    full = presets.preset("full", "cuda")
    counts = Counter()
    for part in full.parts:
        if part.library_only == library_only:
            for op in parse_operators(full.words(part, L2_BYTES)):
                for point in points(op):
                    peak = resolve_peak(point, machine) if point.flop() else None
                    family = families_of(point, Machine.of(machine, peak), "gpu")[0][1].name
                    counts[family, op.dtype] += 1
    return counts


def test_the_full_preset_of_a_gpu_has_rows_enough_to_calibrate_each_family():
    sweep, others = _families(library_only=True), _families(library_only=False)
    by_family = Counter()
    for (family, _), count in sweep.items():
        by_family[family] += count
    assert by_family
    assert all(count >= FEWEST_ROWS for count in by_family.values()), by_family
    # The GPU suite has 4 minutes for all of them; warm-up, check and samples take about 0.3 s a kernel.
    assert sum(sweep.values()) <= 260
    assert sum(others.values()) <= 150


def test_targets_come_first_and_their_tensors_are_large():
    full = presets.preset("full", "cuda")
    assert full.parts[0] == presets.Part("cuda_targets")
    for op in parse_operators(full.words(full.parts[0], L2_BYTES)):
        work = op.work()
        # large enough that starting the kernel does not count: 256 MB to move, or 1 TFLOP to compute
        assert float(work.bytes) >= 256e6 or float(work.flop) >= 1e12, op


def test_one_kernel_for_each_point_is_the_first_that_can_run(simple_gpu):
    op, other = Gemm(m=8, n=8, k=8), Gemm(m=16, n=8, k=8)

    def job(op, name, reason=""):
        kernel = Kernel(name, "gemm", "test", lambda op, inputs: None, supports=lambda op, device: reason)
        return Job(op, kernel, predict(op, simple_gpu))

    jobs = [job(op, "a", "no"), job(op, "b"), job(op, "c"), job(other, "a", "no"), job(other, "b", "no")]
    assert [(one.op.m, one.kernel.name) for one in first_supported(jobs, None)] == [(8, "b"), (16, "a")]
    assert without_repeats([*jobs, *jobs]) == jobs


def test_the_cases_of_a_plugin_are_in_the_presets(monkeypatch):
    cases = BenchmarkCases(cpu_quick="rows=7 cols=9", cuda_sweep="rows=1..4 cols=9\n\nrows=5 cols=9")
    added = SimpleNamespace(__name__="added", KERNELS=(), CASES=cases)
    monkeypatch.setattr(registry, "plugins", lambda group: [Plugin("kernels", "transpose", "added")])
    monkeypatch.setattr(registry, "load_plugins", lambda group, name: [added] if name == "transpose" else [])
    assert "transpose" in operators_with_kernels()
    assert benchmark_cases("transpose")[-1] is cases
    quick = parse_operators(presets.preset("quick", "cpu").tokens(L2_BYTES))
    assert [(op.rows, op.cols) for op in quick if op.op == "transpose"] == [(7, 9)]
    full = presets.preset("full", "cuda")
    (sweep,) = (part for part in full.parts if part.library_only)
    swept = [op for op in parse_operators(full.words(sweep, L2_BYTES)) if op.op == "transpose"]
    assert [len(points(op)) for op in swept] == [3, 1]


def test_cases_of_a_plugin_that_are_none_are_skipped_with_a_warning(monkeypatch, capsys):
    added = SimpleNamespace(__name__="wrong_cases", KERNELS=(), CASES={"cpu_quick": "rows=1"})
    monkeypatch.setattr(registry, "load_plugins", lambda group, name: [added])
    assert added.CASES not in benchmark_cases("transpose")
    assert "CASES is not a BenchmarkCases" in capsys.readouterr().err
