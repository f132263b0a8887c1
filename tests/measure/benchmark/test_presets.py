"""The presets: what they cover, and that a run cut short has the most wanted rows."""

from __future__ import annotations

from collections import Counter

import pytest

pytest.importorskip("torch")

from perfmodel.accuracy.calibration import FEWEST_ROWS
from perfmodel.hardware_catalog import hardware
from perfmodel.kernels.registry import Kernel
from perfmodel.measure.benchmark import presets
from perfmodel.measure.benchmark.one_kernel import Job
from perfmodel.measure.benchmark.resume import without_repeats
from perfmodel.measure.benchmark.runner import first_supported, points
from perfmodel.operators.gemm import Gemm
from perfmodel.operators.parse import parse_operators
from perfmodel.prediction.ceilings import resolve_peak
from perfmodel.prediction.latency.families import families_of
from perfmodel.prediction.latency.machine import Machine
from perfmodel.prediction.predict import predict

FIRST = {"elementwise", "gemm", "layer_norm", "rms_norm", "softmax", "reduction", "attention"}


@pytest.mark.parametrize("kind", ["cpu", "cuda"])
@pytest.mark.parametrize("name", ["quick", "full"])
def test_every_operator_with_kernels_is_in_every_preset(name, kind):
    ops = parse_operators(presets.preset(name, kind).tokens(50e6))
    assert {op.op for op in ops} == FIRST
    assert any(op.op == "attention" and op.causal for op in ops)


def _families(part_of):
    machine = hardware("h200")
    full = presets.preset("full", "cuda")
    found = Counter()
    for part in full.parts:
        if part.library_only == part_of:
            for op in parse_operators(full.words(part, 60 * 2**20)):
                for point in points(op):
                    peak = resolve_peak(point, machine) if point.flop() else None
                    family = families_of(point, Machine.of(machine, peak), "gpu")[0][1].name
                    found[family, op.dtype] += 1
    return found


def test_the_full_preset_of_a_gpu_has_rows_enough_to_calibrate_each_family():
    found = _families(part_of=True)
    for family in (
        ("gemm_bf16", "bf16"), ("gemm_fp8", "fp8"), ("elementwise", "bf16"), ("elementwise", "fp32"),
        ("layer_norm", "bf16"), ("softmax", "bf16"), ("reduction", "fp32"), ("attention_prefill", "bf16"),
        ("attention_decode", "bf16"),
    ):  # fmt: skip
        assert found[family] >= FEWEST_ROWS, family
    # 4 minutes for these and the points below; warm-up, check and samples take about 0.3 s a kernel
    assert sum(found.values()) <= 260
    assert sum(_families(part_of=False).values()) <= 40


def test_kernel_targets_come_first_and_their_tensors_are_large():
    full = presets.preset("full", "cuda")
    first = parse_operators(full.words(full.parts[0], 60 * 2**20))
    streams = [op for op in first if op.op not in ("gemm", "attention")]
    assert all(max(float(t.size_bytes) for t in op.tensors()) >= 256e6 for op in streams)
    assert any(op.op == "gemm" and op.m == op.n == op.k == 8192 for op in first)
    assert any(op.op == "attention" and op.seq_q == 8192 and op.head_dim == 128 and op.causal for op in first)


def test_one_kernel_a_point_is_the_first_that_can_run(simple_gpu):
    op, other = Gemm(m=8, n=8, k=8), Gemm(m=16, n=8, k=8)

    def job(op, name, reason=""):
        kernel = Kernel(name, "gemm", "test", lambda op, inputs: None, supports=lambda op, device: reason)
        return Job(op, kernel, predict(op, simple_gpu))

    jobs = [job(op, "a", "no"), job(op, "b"), job(op, "c"), job(other, "a", "no"), job(other, "b", "no")]
    assert [(one.op.m, one.kernel.name) for one in first_supported(jobs, None)] == [(8, "b"), (16, "a")]
    assert without_repeats([*jobs, *jobs]) == jobs
