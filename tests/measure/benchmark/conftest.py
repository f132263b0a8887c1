"""Jobs of several operators, and their rows, without running anything."""

from __future__ import annotations

import pytest

from perfmodel.core.vocabulary import CacheState
from perfmodel.kernels.registry import Kernel
from perfmodel.measure.benchmark.jobs import Job
from perfmodel.measure.benchmark.rows import Outcome, build_row
from perfmodel.measure.benchmark.settings import BenchSettings
from perfmodel.measure.timing.timer import TimedCall
from perfmodel.operators.attention import Attention
from perfmodel.operators.elementwise import Elementwise
from perfmodel.operators.gemm import Gemm
from perfmodel.operators.layer_norm import LayerNorm
from perfmodel.prediction.predict import predict
from perfmodel.records.schema import Status

OPERATORS = (
    Gemm(m=64, n=32, k=16, bias=True, activation="gelu", dtype="fp16", out_dtype="fp32"),
    Gemm(m=8, n=8, k=8, batch=4, dtype="fp16"),
    Elementwise(numel=1000, kind="add", num_inputs=1),
    LayerNorm(rows=8, cols=32, name="label", count=3),
    Attention(heads=4, kv_heads=2, seq_q=1, seq_kv=128, head_dim=16, causal=True, dtype="fp16"),
)


@pytest.fixture
def make_job(simple_gpu):
    """Make a job of an operator for the simple GPU: ``make_job(op, composition=...)``."""

    def make(op, name="fast", **kernel):
        return Job(op, Kernel(name, op.op, "test", lambda op, inputs: None, **kernel), predict(op, simple_gpu))

    return make


@pytest.fixture
def jobs(make_job):
    """One job of each of several operators."""
    return [make_job(op) for op in OPERATORS]


@pytest.fixture
def make_row(simple_gpu):
    """Make the row of a job: ``make_row(job, 2e-3, timing=...)``; without a time it has failed."""

    def make(job, time_s=2e-3, *, cache=CacheState.WARM, **timed):
        samples = TimedCall((time_s, time_s), "converged", **timed) if time_s else None
        outcome = Outcome(Status.OK, timed=samples) if time_s else Outcome(Status.FAILED, "broken")
        return build_row(job, outcome, simple_gpu, BenchSettings(cache=cache))

    return make
