"""Kernels for the algorithms of a problem: each is right at small sizes, and a wrong one is found."""

from __future__ import annotations

import pytest

pytest.importorskip("torch")
import torch

from perfmodel.errors import UsageError
from perfmodel.kernels.algorithms import contests, find_contest
from perfmodel.kernels.algorithms.product import strassen
from perfmodel.kernels.algorithms.sampling import chi_square
from perfmodel.prediction.algorithms import find_problem, problem_names

#: a size at which every kernel runs within milliseconds
SMALL = {"convolution": 6.0, "product": 64.0, "optimizer": 1024.0, "sampling": 96.0}
CASES = [(name, algorithm) for name, contest in contests().items() for algorithm in contest.kernels]


@pytest.mark.waiting
@pytest.mark.parametrize(("name", "algorithm"), CASES)
def test_every_kernel_is_right(name: str, algorithm: str) -> None:
    contest = contests()[name]
    op = contest.operator(SMALL.get(name, 500.0))
    with torch.inference_mode():
        inputs = contest.inputs(op, "cpu", 7)
        output = contest.kernels[algorithm](inputs, op)()
        assert contest.check(op, inputs, output, algorithm) == ""


@pytest.mark.parametrize("name", sorted({*contests()} - {"optimizer"}))
def test_a_wrong_output_is_found(name: str) -> None:
    contest = contests()[name]
    op = contest.operator(SMALL.get(name, 500.0))
    with torch.inference_mode():
        inputs = contest.inputs(op, "cpu", 7)
        wrong = {"sampling": torch.zeros(3), "topk": torch.zeros(50)}.get(name)
        algorithm, kernel = next(iter(contest.kernels.items()))
        if wrong is None:
            output = kernel(inputs, op)()
            wrong = torch.as_tensor(output).clone() + 1.0
        assert contest.check(op, inputs, wrong, algorithm)


@pytest.mark.parametrize("rate", [1e-3, 2e-3])
def test_a_wrong_step_of_an_optimizer_is_found(rate: float, monkeypatch: pytest.MonkeyPatch) -> None:
    # the weights that were timed have moved further, so that fresh ones are stepped once
    contest, adamw = contests()["optimizer"], torch.optim.AdamW
    monkeypatch.setattr("torch.optim.AdamW", lambda weights, **more: adamw(weights, **{**more, "lr": rate}))
    op = contest.operator(SMALL["optimizer"])
    with torch.inference_mode():
        inputs = contest.inputs(op, "cpu", 7)
        assert bool(contest.check(op, inputs, None, "loop")) == (rate != 1e-3)


@pytest.mark.parametrize("name", sorted(contests()))
def test_a_contest_is_of_a_problem_and_has_its_algorithms(name: str) -> None:
    assert name in problem_names()
    contest, problem = contests()[name], find_problem(name)
    assert contest.problem == name
    for size in (*contest.sizes, *contest.more_sizes):
        assert problem.stated_by(contest.operator(size))


@pytest.mark.parametrize("size", [2, 6, 30])
def test_strassen_by_halves(size: int) -> None:
    a, b = torch.randn(size, size, dtype=torch.float64), torch.randn(size, 2 * size, dtype=torch.float64)
    assert torch.allclose(strassen(a, b), a @ b)


def test_chi_square_tells_a_distribution_from_another() -> None:
    probabilities = torch.tensor([0.5, 0.25, 0.25])
    assert abs(chi_square(torch.tensor([5000.0, 2500.0, 2500.0]), probabilities) + 1.0) < 1e-9  # 0 - 2, over sqrt(4)
    assert chi_square(torch.tensor([4000.0, 3000.0, 3000.0]), probabilities) > 50
    assert chi_square(torch.tensor([1.0, 1.0, 1.0]), torch.tensor([1.0, 1.0, 0.0])) == float("inf")


def test_a_problem_without_kernels_says_which_have_some() -> None:
    with pytest.raises(UsageError, match=r"unknown problem with kernels 'scan'.*sort"):
        find_contest("scan")
