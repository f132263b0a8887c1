"""Events that are computed in one go are those of an engine that computes one after the other."""

from __future__ import annotations

import math
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfmodel.serving.blocks import Windows
from perfmodel.serving.plain import PlainReplica
from perfmodel.serving.replay import PERCENTILES, Replay
from perfmodel.serving.replica import Replica
from perfmodel.serving.requests import Requests, closed_loop, open_loop
from perfmodel.serving.simulate import Server, simulate_server
from perfmodel.serving.tally import Gaps, Tally
from tests.serving.simulated import HandClock, server

SUMS = (
    *("preemptions", "busy_s", "mean_running", "mean_queued", "kv_share", "mean_batch", "mean_context", "kv_bytes"),
    *("steps", "computed_tokens", "generated_tokens", "prompt_steps", "decode_steps", "step_s"),
)


def one_by_one(ran: Server, load: Requests) -> Replay:
    """Return the replay of an engine that computes each event on its own."""
    with patch("perfmodel.serving.simulate.PlainReplica", Replica):
        return simulate_server(ran, load)


@given(
    sizes=st.lists(st.tuples(st.integers(1, 60), st.integers(1, 40), st.floats(0, 0.2)), min_size=1, max_size=25),
    blocks=st.one_of(st.none(), st.integers(7, 60)),
    budget=st.sampled_from([40, 100, 8192]),
    sequences=st.sampled_from([2, 5, 1024]),
    clients=st.integers(0, 5),
    rules=st.fixed_dictionaries(
        {
            "ahead": st.booleans(),
            "encoded": st.sampled_from([0, 1, 2]),
            "preemption": st.sampled_from(["recompute", "swap"]),
            "keeps_blocks": st.booleans(),
            "watermark": st.sampled_from([0.0, 0.2]),
            "replicas": st.sampled_from([1, 2]),
        }
    ),
    cached=st.booleans(),
    states=st.sampled_from([0, 20]),
    windows=st.sampled_from([(), ((16, 1.0),), ((24, 0.3), (64, 0.6))]),
)
def test_plain_events_are_those_of_every_engine(
    sizes: list[tuple[int, int, float]], blocks: int | None, budget: int, sequences: int, clients: int,
    rules: dict[str, object], cached: bool, states: int, windows: Windows,
) -> None:  # fmt: skip
    prompt, output = (np.array([size[index] for size in sizes]) for index in (0, 1))
    gaps = np.array([0.0 if clients else size[2] for size in sizes])
    load = Requests(np.cumsum(gaps), prompt, output, clients, int(prompt.min()) // 2 if cached else 0)
    kv_tokens = math.inf if blocks is None else 16.0 * (blocks + math.ceil(states / 16))
    ran = server(
        "chunked-prefill", kv_tokens, HandClock(0.01, 1e-4, 1e-6), max_batched_tokens=budget, max_num_seqs=sequences,
        sequence_tokens=float(states), windows=windows, kv_bytes_token=1.0, **rules,
    )  # fmt: skip
    quick, plain = simulate_server(ran, load), one_by_one(ran, load)
    for times in ("arrival_s", "started_s", "first_s", "last_s"):
        assert np.array_equal(getattr(quick, times), getattr(plain, times))
    assert [getattr(quick, name) for name in SUMS] == pytest.approx([getattr(plain, name) for name in SUMS], rel=1e-9)
    assert quick.gaps.quantile(0.99) == pytest.approx(plain.gaps.quantile(0.99), rel=1e-9, nan_ok=True)
    assert quick.gaps.sum_s == pytest.approx(plain.gaps.sum_s, rel=1e-9)
    assert np.array_equal(quick.states.running, plain.states.running)


@pytest.mark.parametrize("closed", [False, True])
def test_most_events_of_an_ordinary_load_are_plain(closed: bool) -> None:
    load = closed_loop(8, 300, 64, 50, spread=0.5) if closed else open_loop(20.0, 300, 64, 50, spread=0.5)
    ran = server(clock=HandClock(0.01, 1e-5, 1e-8), ahead=True)
    alone = 0
    advance = Replica.advance

    def counted(self: Replica, until_s: float) -> None:
        nonlocal alone
        alone += 1
        advance(self, until_s)

    with patch.object(Replica, "advance", counted):
        quick, few = simulate_server(ran, load), alone
        plain = one_by_one(ran, load)
    assert few < 0.05 * (alone - few)
    for quantity in ("ttft_s", "tpot_s", "itl_s", "queued_s"):
        assert quick.statistics(quantity, PERCENTILES) == pytest.approx(plain.statistics(quantity, PERCENTILES))
    assert {type(engine) for engine in ran.engines(None)} == {PlainReplica}  # type: ignore[arg-type]


@given(st.lists(st.tuples(st.floats(1e-5, 10.0), st.integers(0, 50)), max_size=30))
def test_gaps_that_are_counted_together_are_those_that_are_counted_alone(pairs: list[tuple[float, int]]) -> None:
    alone, together = Gaps(), Gaps()
    for gap_s, count in pairs:
        if count:
            alone.add(gap_s, count)
    together.add_all(np.array([gap for gap, _ in pairs]), np.array([float(count) for _, count in pairs]))
    assert dict(alone.weights) == dict(together.weights)
    assert together.count == alone.count
    assert together.sum_s == pytest.approx(alone.sum_s)


def test_rows_are_added_up_by_hand() -> None:
    """Three steps of 10 ms in which two of three sequences decode, of 40 tokens; then one of 50 ms with a prompt."""
    tally = Tally()
    tally.rows += [0.01, 3, 3, 2, 5.5, 40, 0.05, 1, 1, 0, 7, 0]
    tally.prompt_steps, tally.read, tally.firsts = 1, 30, 1
    tally.settle()
    tally.settle()  # what was added up is not added again
    assert tally.busy_s == pytest.approx(0.08)
    assert tally.running_s == pytest.approx(3 * 0.03 + 0.05)
    assert tally.blocks_s == pytest.approx(5.5 * 0.03 + 7 * 0.05)
    assert (tally.decode_steps, tally.decoded, tally.steps, tally.tokens, tally.generated) == (3, 6, 4, 36, 7)
    assert tally.decode_contexts == 40 + 42 + 44
    assert tally.gaps.quantile(1.0) == pytest.approx(0.01, rel=3e-3)


def test_gaps_that_are_moved_leave_nothing_behind() -> None:
    gaps = Gaps()
    gaps.move(0.01, 0.5, 2)
    gaps.add_all(np.array([0.01]), np.array([2.0]))
    both = gaps.merged(Gaps())
    assert both.count == 2
    assert len(both.weights) == 1
    assert both.quantile(0.01) == pytest.approx(0.5, rel=3e-3)
