"""Choosing among algorithms: ranks, refusals, crossovers by bisection, and the names of problems."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import perfmodel as pm
from perfmodel.errors import UsageError
from perfmodel.operators.parse import parse_operators
from perfmodel.prediction.algorithms import find_problem, problem_names, problem_of, problems
from perfmodel.prediction.algorithms.choice import WHOLE, WHOLE_FROM, Choice, whole
from perfmodel.prediction.algorithms.crossover import bisect, crossing, grid
from perfmodel.prediction.algorithms.parse import parse_problems

#: dimensions of problems whose defaults are not complete
SIZES = {"product": {"m": 512, "n": 512, "k": 512}}
MACHINES = ("v100", "a100", "h100", "mi300x", "rtx-4090")


def choice(name: str, machine: str = "a100", **dimensions: object) -> Choice:
    return pm.choose(name, machine, **(SIZES.get(name, {}) | dimensions))


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("name", problem_names())
def test_rows_are_ranked_and_every_one_has_a_time_or_a_reason(name: str, machine: str) -> None:
    found = choice(name, machine)
    able = [row for row in found.rows if row.applies]
    assert [row.time_s for row in able] == sorted(row.time_s for row in able)
    assert found.rows[: len(able)] == tuple(able)
    assert found.best == able[0].algorithm
    assert len({row.algorithm for row in found.rows}) == len(found.rows) >= 3
    for row in found.rows:
        assert math.isfinite(row.time_s) or row.why_not, row.algorithm
        if math.isfinite(row.time_s):
            assert row.time_low_s <= row.time_s <= row.time_high_s
            assert row.bytes > 0
            assert row.workspace_bytes >= 0
            assert row.basis


@pytest.mark.parametrize("name", problem_names())
def test_a_choice_never_picks_what_does_not_apply(name: str) -> None:
    found = choice(name)
    refused = {row.algorithm for row in found.rows if row.why_not}
    for size in found.sizes[::6]:
        able = [row for row in found.at(size) if row.applies]
        assert not {row.algorithm for row in able if row.why_not}
    assert found.best not in refused


#: problems in which one algorithm is the fastest at all sizes; linear attention is no answer for a trained model
ONE_FOR_ALL = {"attention", "gelu", "linear_cross_entropy", "optimizer", "sampling", "scan"}


@pytest.mark.parametrize("name", problem_names())
def test_the_fastest_changes_at_each_crossover(name: str) -> None:
    found = choice(name)
    assert bool(found.crossovers) == (name not in ONE_FOR_ALL)
    for item in found.crossovers:
        here = {row.algorithm: row.time_s for row in found.at(item.size) if row.applies}
        assert min(here, key=here.__getitem__) == item.after
        # sizes are found to 0.1 % of whole vectors, and rounded to what the problem has: an even one, a whole number
        step = 2.0 if item.size < WHOLE_FROM else WHOLE
        before = whole(item.size - max(step, 2e-3 * item.size))
        below = {row.algorithm: row.time_s for row in found.at(before) if row.applies}
        assert min(below, key=below.__getitem__) != item.after


@pytest.mark.parametrize("name", problem_names())
def test_curves_have_a_time_for_each_size(name: str) -> None:
    found = choice(name)
    low, high = found.problem.sizes
    assert (found.sizes[0], found.sizes[-1]) == (low, high)
    for times in found.curves.values():
        assert len(times) == len(found.sizes)
    best = np.nanmin(np.array([found.curves[row.algorithm] for row in found.rows if row.applies]), axis=0)
    assert best[-1] > best[0]


def test_problems_are_found_by_name_and_by_operator() -> None:
    assert set(problems()) == set(problem_names())
    assert problem_of(pm.Gemm(m=2, n=2, k=2)).name == "product"
    assert problem_of(pm.Conv2d(n=1, c=2, h=4, w=4, k=2, r=3, s=3)).name == "convolution"
    assert problem_of(pm.Elementwise(numel=4, kind="gelu")).name == "gelu"
    assert problem_of(pm.AllReduce(bytes=8, num_gpus=2)).name == "all_reduce", "compression is asked for by its name"
    assert choice("gradient_compression").problem.name == "gradient_compression"


def test_an_operator_that_states_another_problem_is_refused() -> None:
    with pytest.raises(UsageError, match=r"kind=relu is not the problem gelu.*Leave out kind=relu"):
        choice("gelu", kind="relu")
    with pytest.raises(UsageError, match=r"unknown problem 'convulution'.*Did you mean 'convolution'"):
        parse_problems(["convulution"])


def test_what_has_no_choice_says_what_has() -> None:
    with pytest.raises(UsageError, match=r"no choice of algorithms for softmax.*There is one for"):
        pm.choose(pm.Softmax(rows=2, cols=2), "a100")
    with pytest.raises(UsageError, match="no choice of algorithms for elementwise"):
        pm.choose(pm.Elementwise(numel=4, kind="add"), "a100")
    with pytest.raises(UsageError, match=r"unknown problem 'sorting'.*Did you mean 'sort'"):
        pm.choose("sorting", "a100")
    with pytest.raises(UsageError, match=r"cols has several values.*Give cols one value"):
        pm.choose(pm.Sort(cols=np.array([1.0, 2.0])), "a100")
    with pytest.raises(UsageError, match="dimensions belong to a problem's name"):
        pm.choose(pm.Sort(cols=2), "a100", rows=2)
    with pytest.raises(UsageError, match=r"unknown algorithm 'quick'.*radix"):
        choice("sort")["quick"]


def test_a_line_names_operators_and_problems() -> None:
    stated = parse_problems(["sort", "cols=1024", "gradient-compression", "num_gpus=16", "gelu"])
    assert [(problem.name, op.op) for problem, op in stated] == [
        ("sort", "sort"),
        ("gradient_compression", "all_reduce"),
        ("gelu", "elementwise"),
    ]
    assert stated[0][1].params()["cols"] == 1024
    assert stated[1][1].params() == {"bytes": 2**30, "num_gpus": 16}
    (op,) = parse_operators(["sort", "cols=1024"])
    assert stated[0][1].params() == op.params()


@pytest.mark.parametrize("name", problem_names())
def test_defaults_complete_a_problem_whether_it_or_its_operator_is_named(name: str) -> None:
    problem = find_problem(name)
    ((found, op),) = parse_problems([name])
    assert found is problem
    if problem.main:
        words = [f"{key}={value}" for key, value in problem.stating.items()]
        ((of_operator, same),) = parse_problems([problem.op, *words])
        assert (of_operator, same.params(), same.dtype) == (problem, op.params(), op.dtype)
    with pytest.raises(UsageError, match="numel is missing"):
        parse_problems(["elementwise"])  # of which one kind has a choice


@given(st.integers(2, 10**9), st.integers(1, 10**9))
def test_bisection_finds_the_first_size(first: int, more: int) -> None:
    found = bisect(lambda size: size >= first, 1.0, float(first + more))
    assert first <= found <= max(first + 1, first * 1.002)


@given(st.floats(1.5, 4000.0))
def test_crossing_of_two_straight_lines(where: float) -> None:
    found = crossing(lambda size: size - where, grid(1, 4096))
    assert found == pytest.approx(math.ceil(where), rel=2e-3, abs=1.0)
    assert crossing(lambda size: size + where, grid(1, 4096)) is None
    assert crossing(lambda size: math.nan, grid(1, 4096)) is None


def test_a_choice_on_a_cpu_leaves_out_kernels_of_gpus() -> None:
    from perfmodel.hardware_catalog.read import parse_spec, to_hardware

    spec = {"name": "cpu", "vendor": "x", "architecture": "x", "kind": "cpu", "title": "CPU",
            "memory": {"dram": {"capacity": "8 GiB", "bandwidth": "20 GB/s", "source": "x"}},
            "peak": {"vector": {"fp32": {"rate": "200 GFLOP/s"}, "source": "x"}}}  # fmt: skip
    cpu = to_hardware(parse_spec(spec, "spec"), "spec")
    for name in ("sort", "convolution", "product", "gelu", "topk", "scan"):
        found = pm.choose(name, cpu, **SIZES.get(name, {}))
        assert found.rows[0].applies, name
    assert pm.choose("sort", cpu).best == "host_avx512"
    assert pm.choose("convolution", cpu)["winograd_f43"].why_not
    gradient = pm.Conv2d(n=2, c=16, h=14, w=14, k=16, r=3, s=3, backward=True, gradient="weight")
    assert pm.choose(gradient, cpu).best == "direct"


def test_every_problem_says_what_its_sizes_are() -> None:
    for name in problem_names():
        problem = find_problem(name)
        assert problem.sizes[0] < problem.sizes[1]
        assert problem.op in pm.operator_names()
        assert problem.size


@pytest.mark.parametrize(
    "words",
    ["attention heads=32 seq_q=4096 head_dim=128 dtype=bf16", "attention heads=8 seq_q=1024 head_dim=64",
     "optimizer parameters=1000000", "linear_cross_entropy rows=4096 hidden=1024 vocab=32000",
     "all_reduce bytes=1048576 num_gpus=8", "sampling rows=64 vocab=32000", "sort cols=65536", "scan cols=65536",
     "topk cols=65536 k=8", "gemm m=512 n=512 k=512", "conv2d n=8 c=64 h=28 w=28 k=64 r=3 s=3"],
)  # fmt: skip
def test_words_that_state_an_operator_mean_the_same_as_without_algorithms(words: str) -> None:
    tokens = words.split()
    (stated,) = parse_operators(tokens)
    ((_, op),) = parse_problems(tokens)
    assert op.params() == stated.params()
    name, given = tokens[0], {key: getattr(stated, key) for key in (token.partition("=")[0] for token in tokens[1:])}
    if name in problem_names():
        assert choice(name, "h100", **given).op.params() == stated.params()


def test_words_that_state_no_operator_wholly_take_all_defaults_of_the_problem() -> None:
    ((problem, op),) = parse_problems(["attention", "seq_q=4096"])
    assert (op.params()["causal"], op.dtype) == (problem.defaults["causal"], problem.defaults["dtype"])
    assert op.params()["seq_q"] == 4096
    ((_, gelu),) = parse_problems(["gelu", "numel=1000"])
    assert gelu.params()["kind"] == "gelu"
