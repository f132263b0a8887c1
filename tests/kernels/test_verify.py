"""The judge of timed calls against kernels that cheat, by mistake or otherwise."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from perfmodel.kernels.inputs import changed_inputs, make_inputs  # noqa: E402 -- after the check that torch is there
from perfmodel.kernels.verify import poison, verify  # noqa: E402
from perfmodel.operators.elementwise import Elementwise  # noqa: E402
from perfmodel.operators.gemm import Gemm  # noqa: E402

RELU = Elementwise(numel=1001, kind="relu")


#: looked up when they are called: a name that was imported before keeps torch's own
ALLOCATE = (lambda x: torch.empty_like(x), lambda x: torch.empty(x.shape), lambda x: x.new_empty(1001))


def _verdict(make, op=RELU):
    inputs = make_inputs(op, "cpu", seed=3)
    before = {name: tensor.clone() for name, tensor in inputs.items()}
    verdict = verify(op, make(*inputs.values()), inputs, seed=3)
    assert all(torch.equal(before[name], tensor) for name, tensor in inputs.items()), "the inputs come back"
    return verdict


def test_an_honest_kernel_passes():
    assert _verdict(lambda x: lambda: torch.relu(x[0])).correct


def test_a_kernel_that_writes_to_a_buffer_of_its_own_passes():
    def make(x):
        out = torch.empty_like(x[0])
        return lambda: torch.clamp(x[0], min=0, out=out)

    assert _verdict(make).correct


def test_a_result_that_was_computed_before_is_wrong():
    def make(x):
        kept = torch.relu(x[0])
        return lambda: kept

    def copying(x):
        kept = torch.relu(x[0])
        return lambda: kept.clone()

    for cheats in (make, copying):
        verdict = _verdict(cheats)
        assert not verdict.correct
        assert "of 1001" in verdict.message


def test_a_result_kept_by_the_address_of_its_input_is_wrong():
    results = {}

    def make(x):
        return lambda: results.setdefault(x.data_ptr(), torch.relu(x[0])).clone()

    assert not _verdict(make).correct


@pytest.mark.parametrize("written", [0, 1, 500, 1000])
@pytest.mark.parametrize("allocate", ALLOCATE)
def test_elements_that_are_left_unwritten_are_wrong(written, allocate):
    def make(x):
        def call():
            out = allocate(x[0])
            out[:written] = torch.relu(x[0][:written])
            return out

        return call

    verdict = _verdict(make)
    assert not verdict.correct
    assert verdict.message == f"{1001 - written} of 1001 outputs are beyond the tolerance"


def test_a_kernel_that_writes_to_its_input_is_wrong_although_its_output_fits_what_it_left_there():
    def emptying(a, b):
        return lambda: torch.matmul(a.zero_(), b)

    verdict = _verdict(emptying, Gemm(m=8, n=8, k=8, dtype="fp32"))
    assert (verdict.correct, verdict.message) == (False, "it writes to its input a")
    assert _verdict(lambda x: lambda: x[0].relu_()).message == "it writes to its input x"


def test_a_copy_that_returns_its_input_is_wrong():
    verdict = _verdict(lambda x: lambda: x[0], Elementwise(numel=8, kind="copy"))
    assert verdict.message == "its output shares the memory of its input x"


def test_inputs_of_8_bits_are_compared_too():
    op = Gemm(m=16, n=16, k=16, dtype="fp8")
    inputs = make_inputs(op, "cpu", seed=3)
    assert changed_inputs(op, inputs, 3) == []
    inputs["b"][0, 1, 2] = 100.0
    assert changed_inputs(op, inputs, 3) == ["b"]


def test_elements_that_only_the_first_call_writes_are_wrong():
    def make(x):
        out, first = torch.empty_like(x[0]), [True]

        def call():
            count = 1001 if first.pop() else 1000
            first.append(False)
            out[:count] = torch.relu(x[0][:count])
            return out

        return call

    assert _verdict(make).message == "1 of 1001 outputs are beyond the tolerance"


def test_allocators_are_as_they_were_and_a_failing_kernel_leaves_the_inputs_as_they_were():
    before = (torch.empty, torch.empty_like, torch.empty_strided, torch.Tensor.new_empty)
    inputs = make_inputs(RELU, "cpu", seed=3)
    calls = []

    def call():
        calls.append(1)
        if len(calls) == 2:
            raise RuntimeError("the second call fails")
        return torch.relu(inputs["x"][0])

    with pytest.raises(RuntimeError, match="second"):
        verify(RELU, call, inputs, seed=3)
    assert torch.equal(inputs["x"], make_inputs(RELU, "cpu", seed=3)["x"])
    assert before == (torch.empty, torch.empty_like, torch.empty_strided, torch.Tensor.new_empty)


def test_inputs_of_8_bits_come_back_too():
    op = Gemm(m=4, n=6, k=8, dtype="fp8")
    inputs = make_inputs(op, "cpu", seed=5)
    verdict = verify(op, lambda: (inputs["a"].float() @ inputs["b"].float()).bfloat16(), inputs, seed=5)
    assert verdict.correct
    assert torch.equal(inputs["b"].float(), make_inputs(op, "cpu", seed=5)["b"].float())


def test_what_is_not_a_tensor_is_wrong():
    assert "NoneType" in _verdict(lambda x: lambda: None).message


def test_poison_is_what_no_result_is():
    assert torch.isnan(poison(torch.zeros(3, dtype=torch.float8_e4m3fn)).float()).all()
    assert torch.equal(poison(torch.zeros(2, dtype=torch.int8)), torch.tensor([127, 127], dtype=torch.int8))
