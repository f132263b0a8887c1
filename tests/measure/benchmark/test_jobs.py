"""Which kernels run at which points."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

torch = pytest.importorskip("torch")

from perfmodel.core.hardware import Launch  # noqa: E402
from perfmodel.errors import UsageError  # noqa: E402
from perfmodel.kernels.registry import Kernel  # noqa: E402
from perfmodel.measure.benchmark import jobs as jobs_module  # noqa: E402
from perfmodel.measure.benchmark.jobs import (  # noqa: E402
    Job,
    plan,
    points,
    split_by_peak,
    split_supported,
)
from perfmodel.operators.attention import Attention  # noqa: E402
from perfmodel.operators.elementwise import Elementwise  # noqa: E402
from perfmodel.operators.embedding import Embedding  # noqa: E402
from perfmodel.operators.gemm import Gemm  # noqa: E402
from perfmodel.operators.layer_norm import LayerNorm  # noqa: E402
from perfmodel.prediction.predict import predict  # noqa: E402


@pytest.fixture
def machine(simple_gpu):
    """The round machine without a launch floor: 10 TFLOP/s fp32, 1 TB/s, 4 TB/s in an L2 of 10 MB."""
    return dataclasses.replace(simple_gpu, launch=Launch(overhead_s=2e-6))


def _job(machine, function, op=None, **kernel):
    op = op or Elementwise(numel=1000, kind="relu")
    made = Kernel("test", op.op, "test", lambda op, inputs: lambda: function(inputs), **kernel)
    return Job(op, made, predict(op, machine))


def _relu(inputs):
    return torch.relu(inputs["x"][0])


def test_plan_runs_each_kernel_of_each_point(machine):
    jobs = plan([Gemm(m=np.array([64.0, 128.0]), n=64, k=512, dtype="fp32")], machine, ["torch.matmul", "naive"])
    assert [(job.op.m, job.kernel.name) for job in jobs] == [
        (64, "torch.matmul"), (64, "naive"), (128, "torch.matmul"), (128, "naive"),
    ]  # fmt: skip


def test_plan_keeps_only_the_named_kernels_and_refuses_unknown_names(machine):
    ops = [LayerNorm(rows=8, cols=8)]
    assert [job.kernel.name for job in plan(ops, machine, ["naive"])] == ["naive"]
    assert [job.kernel.name for job in plan(ops, machine, ["F.*"])] == ["F.layer_norm"]
    with pytest.raises(UsageError, match=r"Did you mean 'naive'\?"):
        plan(ops, machine, ["naiv"])


def test_plan_refuses_a_dtype_that_the_machine_lacks(machine):
    with pytest.raises(UsageError, match="no peak for dtype 'bf16'"):
        plan([Gemm(m=8, n=8, k=8, dtype="bf16")], machine)
    kept, reasons = split_by_peak([Gemm(m=8, n=8, k=8, dtype="bf16"), LayerNorm(rows=8, cols=8)], machine)
    assert [op.op for op in kept] == ["layer_norm"]
    assert "bf16" in reasons[0]


@given(
    st.lists(st.integers(1, 2**40), min_size=1, max_size=4),
    st.sampled_from(["fp32", "fp16"]),
    st.booleans(),
)
def test_points_of_a_range_count_the_same_work_as_the_range(sizes, dtype, bias):
    op = Gemm(m=np.asarray(sizes, dtype=float), n=8, k=4, bias=bias, dtype=dtype, name="label", count=3)
    made = points(op)
    assert [point.work().flop for point in made] == op.work().flop.tolist()
    assert [point.work().bytes for point in made] == op.work().bytes.tolist()
    assert all((point.name, point.count, point.given()) == ("label", 3, op.given()) for point in made)


def test_points_keep_what_is_derived_derived():
    made = points(Attention(heads=np.array([2.0, 4.0]), seq_q=8, head_dim=8))
    assert [point.kv_heads for point in made] == [2, 4]
    assert "kv_heads" not in made[0].given()


def test_slow_compilers_run_only_when_named(machine, monkeypatch):
    quick = Kernel("quick", "elementwise", "test", lambda op, inputs: None)
    slow = dataclasses.replace(quick, name="compiled", compiles=True)
    monkeypatch.setattr(jobs_module, "find_kernels", lambda op: [quick, slow])
    ops = [Elementwise(numel=8)]

    def names(*arguments):
        return [job.kernel.name for job in plan(ops, machine, *arguments)]

    assert names() == ["quick"]
    assert names(["comp*"]) == ["compiled"]


def test_a_kernel_is_predicted_as_that_of_the_release_of_its_backend(machine, monkeypatch):
    kernels = [Kernel(backend, "embedding", backend, lambda op, inputs: None) for backend in ("torch", "vllm", "user")]
    monkeypatch.setattr(jobs_module, "find_kernels", lambda op: kernels)
    jobs = plan([Embedding(tokens=8, vocab=8, dim=8)], machine, releases={"torch": "2.6.0", "vllm": "0.24.0"})
    assert [job.prediction.library for job in jobs] == ["torch-2.6.0", "vllm-0.24.0", "user"]
    assert [job.prediction.conditions.release for job in jobs] == [(2, 6, 0), (0, 24, 0), ()]


def test_kernels_that_the_device_cannot_run_are_left_out_where_another_can(machine, scripted):
    op, other = Elementwise(numel=1000, kind="relu"), Elementwise(numel=500, kind="relu")
    refuses = {"supports": lambda op, device: "needs a GPU"}
    jobs = [_job(machine, _relu, op), _job(machine, _relu, op, **refuses), _job(machine, _relu, other, **refuses)]
    kept, left_out = split_supported(jobs, scripted())
    assert kept == [jobs[0], jobs[2]], "an operator that nothing can run keeps its row"
    assert left_out == ["left out test: needs a GPU"]
