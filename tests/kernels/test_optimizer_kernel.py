"""The step of torch.optim: its copies are timed in inference mode, and a call is the step and nothing else."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from torch.utils._python_dispatch import TorchDispatchMode  # noqa: E402 -- after the check that torch is there

from perfmodel.kernels import registry  # noqa: E402
from perfmodel.kernels.device import open_device  # noqa: E402
from perfmodel.kernels.inputs import make_inputs  # noqa: E402
from perfmodel.kernels.verify import verify  # noqa: E402
from perfmodel.measure.timing.input_copies import InputCopies  # noqa: E402
from perfmodel.operators.optimizer import Optimizer  # noqa: E402

CPU = open_device("cpu")
STEPS = [
    Optimizer(parameters=1000, kind=kind, algorithm=algorithm, num_tensors=16)
    for kind in ("adamw", "sgd")
    for algorithm in ("fused", "foreach", "loop")
]


class Calls(TorchDispatchMode):
    """Counts the operators that run on tensors, by name."""

    def __init__(self):
        super().__init__()
        self.names = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.names.append(func.overloadpacket.__name__)
        return func(*args, **(kwargs or {}))


def _prepared(op):
    kernel = next(kernel for kernel in registry.find_kernels("optimizer") if kernel.name == "torch.optim")
    inputs = make_inputs(op, "cpu", 0)
    return kernel, inputs, kernel.prepare(op, inputs)


@pytest.mark.parametrize("op", STEPS, ids=str)
def test_copies_step_where_calls_are_timed(op):
    kernel, inputs, _ = _prepared(op)
    with CPU.precision(op.dtype):
        call = kernel.prepare(op, inputs)
        assert verify(op, call, inputs, in_place=True).correct
        first, second = InputCopies(op, kernel, inputs, call, CPU).calls(2)
        results = first(), second()
    assert results[0].data_ptr() != results[1].data_ptr()


@pytest.mark.parametrize("op", STEPS, ids=str)
def test_a_call_sets_nothing_back(op):
    """A kernel a tensor that did so took 260 us of 280 where a fused step had 128 tensors (H200, torch 2.11)."""
    _, _, call = _prepared(op)
    call()
    with Calls() as calls:
        call()
    assert not {"zero_", "fill_", "copy_"} & set(calls.names), calls.names


def test_the_first_step_comes_again_with_new_inputs():
    op = Optimizer(parameters=100, num_tensors=4)
    _, inputs, call = _prepared(op)
    verdicts = [verify(op, call, inputs, in_place=True) for _ in range(3)]
    assert all(verdict.correct for verdict in verdicts), verdicts
