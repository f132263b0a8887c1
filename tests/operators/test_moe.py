"""Counts of a mixture of experts by hand, and what holds for any routing."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import perfmodel as pm
from perfmodel.errors import UsageError
from perfmodel.operators.routing import Dispatcher, Router, expected_touched, expected_visits, loads

SMALL: dict[str, Any] = {"tokens": 2, "hidden": 4, "inter": 8, "experts": 4, "top_k": 2}


def test_products_by_hand() -> None:
    """4 slots, three products of 4 x 8 each, 2 FLOP a multiply-add: 2 4 4 8 3."""
    op = pm.Moe(**SMALL)
    assert op.own_slots == 4
    assert op.product_flop() == 768
    # activation 5 x 4 x 8, weighted sum 2 x 4 x 4, router 2 (2 x 4 x 4 + 4)
    assert op.flop() == 768 + 160 + 32 + 72
    assert pm.Moe(**SMALL, gated=False).product_flop() == 512


def test_traffic_by_hand() -> None:
    """Two tokens with 2 of 4 experts touch 4 (1 - 1/4) = 3 of them: 3 x 96 weights; 8 numbers in and out; router 16."""
    work = pm.Moe(**SMALL, dtype="bf16").work()
    assert work.bytes_read == 2 * (3 * 96 + 8 + 16)
    assert work.bytes_written == 16
    assert pm.Moe(**SMALL, dtype="bf16", router=False).work().bytes_read == 2 * (3 * 96 + 8)


def test_weights_have_their_scales() -> None:
    """256 experts of 2 x 7168 x 2048 and 2048 x 7168, all touched; a block of 128 x 128 has 4 B, a group of 16 1 B."""
    sizes: dict[str, Any] = {
        "tokens": 10**6,
        "hidden": 7168,
        "inter": 2048,
        "experts": 256,
        "top_k": 8,
        "router": False,
    }
    numbers = 256 * 3 * 7168 * 2048
    tokens = 2 * 10**6 * 7168 * 2
    assert pm.Moe(**sizes, dtype="fp8_block").work().bytes == pytest.approx(numbers * (1 + 4 / 128**2) + tokens)
    assert pm.Moe(**sizes, dtype="nvfp4").work().bytes == pytest.approx(numbers * 0.5625 + tokens)
    assert pm.Moe(**sizes, dtype="int4_wo").work().bytes == pytest.approx(numbers * (0.5 + 2 / 128) + tokens)
    assert pm.Moe(**sizes, dtype="int4_wo").weight_bytes == 0.515625


@pytest.mark.parametrize(("tokens", "found"), [(1, 8.0), (8, 51.6), (64, 125.9), (512, 128.0)])
def test_touched_experts(tokens: int, found: float) -> None:
    assert expected_touched(tokens, 128, 8) == pytest.approx(found, abs=0.05)


def test_experts_in_turn_are_touched_as_soon_as_there_are_slots() -> None:
    op = pm.Moe(tokens=np.array([1, 8, 64]), hidden=64, inter=64, experts=128, top_k=8, routing="balanced")
    assert np.array_equal(op.touched, [8, 64, 128])


def test_ranks_that_a_token_visits() -> None:
    assert expected_visits(256, 8, 8) == pytest.approx(5.3, abs=0.05)
    assert expected_visits(8, 2, 1) == 1
    assert np.array_equal(expected_visits(8, np.array([1, 8]), 8), [1, 8])
    # Tokens that take the experts in turn have one on each rank, as far as there are experts of a token.
    in_turn = pm.Moe(
        tokens=64, hidden=64, inter=64, experts=128, top_k=8, ep=np.array([1, 4, 8, 32]), routing="balanced"
    )
    assert np.array_equal(in_turn.visits, [1, 4, 8, 8])
    assert np.array_equal(in_turn.visiting_slots, [512, 512, 512, 128])


def test_a_router_with_groups_by_hand() -> None:
    """Two of four groups of two experts: a rank's group is chosen half the time, and 1 of 6 pairs leaves it out."""
    assert Router(8, 2, 4, 2).visits(4) == pytest.approx(4 * 0.5 * (1 - 1 / 6))
    # one group of two: both experts of a token lie on one of two ranks, and on two of four
    assert [Router(4, 2, 2, 1).visits(ranks) for ranks in (1, 2, 4)] == pytest.approx([1, 1, 2])
    # groups that all are chosen limit nothing
    assert Router(256, 8, 8, 8).visits(8) == expected_visits(256.0, 8, 8.0)


@pytest.mark.parametrize(("router", "ranks"), [(Router(12, 3, 4, 2), 3), (Router(12, 2, 6, 2), 4), (Router(8, 4), 4)])
def test_visits_are_the_mean_over_all_choices(router: Router, ranks: int) -> None:
    """Also where ranks end within groups."""
    counts = [
        len({expert * ranks // router.experts for expert in chosen})
        for groups in itertools.combinations(range(router.groups), router.chosen)
        for chosen in itertools.combinations(
            [expert for expert in range(router.experts) if expert * router.groups // router.experts in groups],
            router.top_k,
        )
    ]
    assert router.visits(ranks) == pytest.approx(np.mean(counts))


@given(
    ranks=st.sampled_from([1, 2, 4, 8, 16, 64]),
    top_k=st.integers(1, 16),
    chosen=st.integers(1, 8),
)
def test_groups_and_shared_ranks_save_copies(ranks: int, top_k: int, chosen: int) -> None:
    limited, free = Router(128, top_k, 8, chosen), Router(128, top_k)
    copies = {dispatcher: limited.copies(dispatcher, ranks) for dispatcher in Dispatcher}
    assert 1.0 - 1e-9 <= copies[Dispatcher.DEEPEP] <= free.visits(ranks) + 1e-9
    assert copies[Dispatcher.DEEPEP] <= min(copies[Dispatcher.ALLTOALL], copies[Dispatcher.ALLGATHER]) + 1e-9
    assert copies[Dispatcher.ALLTOALL] == top_k
    assert copies[Dispatcher.ALLGATHER] == ranks


def test_exchange_sends_each_token_to_the_ranks_that_it_visits() -> None:
    """80 tokens on 8 ranks: 10 of a rank, each to 5.3 ranks, 7168 numbers of 1 B and a scale of 4 B for 128."""
    op = pm.Moe(tokens=80, hidden=7168, inter=2048, experts=256, top_k=8, ep=8, dtype="fp8_block")
    assert op.dispatch().bytes == np.ceil(10 * op.visits * 7168 * (1 + 4 / 128))
    assert op.combine().bytes == np.ceil(10 * op.visits * 7168 * 2)
    assert op.dispatch().peer_bytes() == pytest.approx(7 / 8 * op.dispatch().bytes)


def test_tiles_are_filled_up() -> None:
    """Balanced: 18 slots on 2 experts are 9 rows each, 2 tiles of 8 each; 4 slots of other ranks make one more."""
    op = pm.Moe(tokens=9, hidden=64, inter=64, experts=4, top_k=4, ep=2, routing="balanced")
    assert op.own_slots == 18
    assert op.blocks(8) == 4
    assert op.changed(slots=22).blocks(8) == 5
    assert op.changed(slots=22).product_flop() == 22 / 18 * op.product_flop()
    # 17 rows on 2 experts are 8 and 9: one tile and two
    assert pm.Moe(tokens=17, hidden=64, inter=64, experts=2, top_k=1, routing="balanced").blocks(8) == 3


def test_what_moves_between_the_products_by_hand() -> None:
    """4 slots of 4 numbers sorted and summed up, 2 tokens of 4 in and out, 4 slots of 8 numbers and their gates."""
    op = pm.Moe(**SMALL, dtype="bf16")
    assert op.glue_bytes() == 2 * (2 * 4 * 4 + 2 * 2 * 4 + 2 * 4 * 8)
    # a slot that passes through as zeros moves as much
    assert op.glue_bytes(1.0) == 2 * (2 * 5 * 4 + 2 * 2 * 4 + 2 * 5 * 8)
    assert pm.Moe(**SMALL, dtype="bf16", gated=False).glue_bytes() == 2 * (2 * 4 * 4 + 2 * 2 * 4 + 4 * 8)


def test_all_experts_of_even_tokens_are_the_dense_product() -> None:
    op = pm.Moe(tokens=7, hidden=16, inter=32, experts=4, top_k=4)
    dense = 4 * (2 * pm.Gemm(m=7, n=32, k=16).flop() + pm.Gemm(m=7, n=16, k=32).flop())
    assert op.product_flop() == dense


@given(
    st.integers(1, 3000), st.sampled_from([4, 8, 64, 128]), st.integers(1, 4), st.sampled_from([1, 2, 4]),
    st.sampled_from([0.0, 1.0, 1.01, 1.2]),
)  # fmt: skip
def test_loads(tokens: int, experts: int, top_k: int, ranks: int, skew: float) -> None:
    """All slots are somewhere; the busiest rank has at least its share; tiles hold the rows."""
    found = loads(tokens, experts, top_k, ranks, skew, False)
    assert found.touched <= min(experts / ranks, tokens * top_k) + 1e-9
    assert found.slots <= tokens * top_k
    if ranks == 1:
        assert found.slots == tokens * top_k
    elif skew:
        assert found.slots >= tokens * top_k / ranks - 1e-9
    assert found.blocks[0] * 8 >= found.slots - 1e-9
    assert all(a >= b for a, b in zip(found.blocks, found.blocks[1:], strict=False))
    assert found.largest <= (tokens if skew else tokens * top_k)


@pytest.mark.parametrize("skew", [0.0, 1.2])
def test_scalar_equals_array(skew: float) -> None:
    tokens = np.array([1, 5, 300])
    sizes: dict[str, Any] = {"hidden": 256, "inter": 512, "experts": 16, "top_k": 4, "ep": 2, "skew": skew}
    together = pm.Moe(tokens=tokens, **sizes).work()
    for index, count in enumerate(tokens.tolist()):
        alone = pm.Moe(tokens=count, **sizes).work()
        assert (together.flop[index], together.bytes[index]) == (alone.flop, alone.bytes)  # type: ignore[index]


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"top_k": 5}, "top_k=5 is above experts=4"),
        ({"ep": 8}, "ep=8 is above experts=4"),
        ({"ep": 3}, "experts=4 is not a multiple of ep=3"),
        ({"tp": 3}, "inter=8 is not a multiple of tp=3"),
        ({"tokens": 0}, "tokens=0 is below 1"),
        ({"dtype": "int4_wo"}, "hidden=4 is not a multiple of the 128 numbers"),
        ({"scale": "rows"}, "is no kind of scale"),
        ({"skew": 1.2, "routing": "balanced"}, "contradicts routing=balanced"),
        ({"skew": -1.0}, "skew=-1.0 is not a number from 0 on"),
        ({"slots": 3}, "slots is below the rows"),
    ],
)
def test_impossible_layers(changed: dict[str, Any], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        pm.Moe(**{**SMALL, **changed})


@pytest.mark.parametrize("dims", [{}, {"skew": 1.2}, {"routing": "balanced"}])
def test_a_sweep_has_the_same_points_after_it_was_counted(dims: dict[str, Any]) -> None:
    tokens = np.arange(1.0, 1200.0)
    op = pm.Moe(tokens=tokens, hidden=512, inter=256, experts=16, top_k=2, dtype="bf16", **dims)
    first = pm.predict(op, "h100-sxm5-80gb")
    vars(op)["_tiles"] = np.zeros((18, tokens.size))
    assert op.shape == tokens.shape, "what an operator keeps of its own results is no dimension"
    assert op.points == tokens.size
    assert np.array_equal(pm.predict(op, "h100-sxm5-80gb").predicted_time_s, first.predicted_time_s)
