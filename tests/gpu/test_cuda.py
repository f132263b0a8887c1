"""What only a real GPU can show: kernels, events and the whole command on CUDA. Skipped where there is none."""

from __future__ import annotations

import json

import pytest

torch = pytest.importorskip("torch")

from perfmodel.kernels import registry  # noqa: E402 -- after the check that torch is there
from perfmodel.kernels.check import check  # noqa: E402
from perfmodel.kernels.device import open_device  # noqa: E402
from perfmodel.kernels.inputs import make_inputs  # noqa: E402
from perfmodel.measure.stopping import StandardErrorRule  # noqa: E402
from perfmodel.measure.timer import time_call  # noqa: E402
from perfmodel.operators.attention import Attention  # noqa: E402
from perfmodel.operators.elementwise import Elementwise  # noqa: E402
from perfmodel.operators.gemm import Gemm  # noqa: E402
from perfmodel.operators.layer_norm import LayerNorm  # noqa: E402

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="torch sees no CUDA GPU"),
]


def _operators():
    for dtype in ("fp32", "tf32", "bf16", "fp16"):
        yield Gemm(m=513, n=260, k=1000, dtype=dtype)
        yield Gemm(m=64, n=128, k=256, batch=5, bias=True, activation="gelu", dtype=dtype)
    for dtype in ("fp32", "bf16", "fp16"):
        yield LayerNorm(rows=1000, cols=1600, dtype=dtype)
        yield Elementwise(numel=100_003, kind="silu_mul", dtype=dtype)
        yield Attention(heads=8, kv_heads=2, seq_q=300, head_dim=64, causal=True, dtype=dtype)
        yield Attention(batch=3, heads=8, kv_heads=2, seq_q=1, seq_kv=1000, head_dim=64, causal=True, dtype=dtype)


@pytest.mark.parametrize("op", _operators(), ids=lambda op: f"{op.op}-{op.dtype}-{op.params()}")
def test_kernels_agree_with_float64(op):
    device = open_device("cuda")
    inputs = make_inputs(op, "cuda", seed=1)
    ran = 0
    for kernel in registry.find_kernels(op.op):
        if kernel.applies(op) and not kernel.supports(op, device):
            with device.precision(op.dtype):
                verdict = check(op, inputs, kernel.prepare(op, inputs)())
            assert verdict.correct, f"{kernel.name}: {verdict.message}"
            ran += 1
    assert ran


def _median_s(megabytes, cache):
    device = open_device("cuda")
    source = torch.empty(megabytes * 2**20, dtype=torch.int8, device="cuda")
    target = torch.empty_like(source)
    rule = StandardErrorRule(max_samples=200, time_limit_s=2.0)
    return time_call(lambda: target.copy_(source), device, rule, cache=cache).median_s


def test_events_measure_the_copy_and_not_the_launch():
    # 8 times the data takes 8 times as long, if neither launch latency nor the flush is inside the interval
    assert 6 < _median_s(2048, "flushed") / _median_s(256, "flushed") < 10


def test_a_flush_makes_data_that_fits_the_cache_cold():
    assert _median_s(8, "flushed") > 1.1 * _median_s(8, "warm")


def test_the_whole_benchmark_runs(perfmodel, tmp_path):
    record = tmp_path / "record.json"
    ran = perfmodel("bench", "--device", "cuda", "--time-limit", "0.2", "-o", record)
    assert ran.code == 0, ran.err
    document = json.loads(record.read_text())
    assert {row["status"] for row in document["rows"]} == {"ok"}
    assert document["context"]["device"]["kind"] == "cuda"
