"""Sequences of documents: pairs and FLOP by hand, limiting cases, and what unequal documents cost."""

from __future__ import annotations

import itertools
import random

import pytest

import perfmodel as pm
from perfmodel.cluster.cluster import Cluster
from perfmodel.errors import UsageError
from perfmodel.hardware_catalog import hardware
from perfmodel.training.documents import (
    imbalance,
    of_sequence,
    spread_lengths,
    weighted_length,
    work_deviation,
)
from perfmodel.training.flops import core_flop
from perfmodel.training.plan import TrainingPlan
from perfmodel.training.result import TrainingStep
from perfmodel.training.search import full_step
from perfmodel.training.step import train
from perfmodel.workloads.catalog import named_model

LLAMA, GEMMA = named_model("llama-3.1-8b"), named_model("gemma-2-9b")
H100 = hardware("h100-sxm5-80gb")
SEQ = 8192


def step(gpus: int = 8, model: str = "", **values: object) -> TrainingStep:
    usual = {"batch": 32, "seq": SEQ, "micro_batch": 1, "framework": "megatron", "zero": 1}
    plan = TrainingPlan(**(usual | values))  # type: ignore[arg-type]
    return train(named_model(model) if model else LLAMA, Cluster.of(H100, gpus), plan)


@pytest.mark.parametrize("framework", ["megatron", "fsdp2-compile", "torchtune", "huggingface", "megatron-2021"])
@pytest.mark.parametrize("documents", [SEQ, 10 * SEQ])
def test_one_document_is_the_sequence(framework: str, documents: int) -> None:
    for model in ("llama-3.1-8b", "gemma-2-9b"):
        whole, one = (step(model=model, framework=framework, zero=0, documents=length) for length in ((), documents))
        assert one.terms_s == whole.terms_s
        assert (one.flop, one.flop_full_attention, one.hardware_flop) == (
            whole.flop, whole.flop_full_attention, whole.hardware_flop,
        )  # fmt: skip


def test_documents_of_a_token_have_next_to_no_attention() -> None:
    whole, single = step(), step(documents=1)
    assert single.terms_s["attention"] < 0.15 * whole.terms_s["attention"]
    others = [{**found.terms_s, "attention": 0.0} for found in (whole, single)]
    assert others[0] == others[1]
    assert core_flop(LLAMA, SEQ, 0, (1.0,))[0] == pytest.approx(core_flop(LLAMA, SEQ)[0] * 2 / (SEQ + 1))


def test_flop_are_the_pairs_within_documents() -> None:
    """Documents of 1,000 and 3,000 tokens, equally frequent: 4,096 of 4,000 tokens of both."""
    pairs = 4096 / 4000 * (1000 * 1001 / 2 + 3000 * 3001 / 2)
    squares = 4096 / 4000 * (1000**2 + 3000**2)
    half, whole = core_flop(LLAMA, 4096, 0, (1000.0, 3000.0))
    assert half == pytest.approx(4 * 32 * 4096 * pairs)
    assert whole == pytest.approx(4 * 32 * 4096 * squares)
    found = full_step(LLAMA, Cluster.of(H100, 8), TrainingPlan(batch=8, seq=4096, documents=[1000, 3000]))
    bare = full_step(LLAMA, Cluster.of(H100, 8), TrainingPlan(batch=8, seq=4096))
    assert bare.flop - found.flop == pytest.approx(3 * 8 * 4 * 32 * 4096 * (4096 * 4097 / 2 - pairs))
    assert found.flop_full_attention - found.flop == pytest.approx(3 * 8 * 4 * 32 * 4096 * (squares - pairs))


def test_a_window_counts_document_by_document() -> None:
    """Queries of a document see the window of 4,096 tokens, and no more than the document has."""
    lengths = (1000.0, 7000.0)
    near = [min(place, 4096) for length in (1000, 7000) for place in range(1, length + 1)]
    full = [place for length in (1000, 7000) for place in range(1, length + 1)]
    layers = GEMMA.layers / 2
    expected = 4 * GEMMA.heads * GEMMA.head_dim * layers * SEQ / 8000 * (sum(near) + sum(full))
    assert core_flop(GEMMA, SEQ, 0, lengths)[0] == pytest.approx(expected)


def test_one_length_stands_for_all() -> None:
    """S / E[l] documents of l^2 are S / c of c^2 with c = E[l^2] / E[l]."""
    lengths = (100.0, 700.0, 4000.0)
    assert of_sequence(lengths, SEQ, lambda length: length**2) == pytest.approx(SEQ * weighted_length(lengths))


def test_shorter_documents_take_no_longer() -> None:
    found = [step(documents=length) for length in (8192, 4096, 2048, 1024, 512, 256, 128, 64)]
    assert all(later.time_s <= earlier.time_s for earlier, later in itertools.pairwise(found))
    assert all(later.flop < earlier.flop for earlier, later in itertools.pairwise(found))
    # the FLOP of a square: half the length, half the products of attention
    flop = [core_flop(LLAMA, SEQ, 0, (float(length),))[0] for length in (4096, 2048)]
    assert flop[1] / flop[0] == pytest.approx(0.5, rel=1e-3)


def test_unequal_documents_of_one_mean_take_longer() -> None:
    equal, some, wide = (step(gpus=1, batch=4, documents=1024, length_spread=spread) for spread in (0.0, 0.5, 1.0))
    assert equal.terms_s["attention"] < some.terms_s["attention"] < wide.terms_s["attention"]
    assert wide.flop > some.flop > equal.flop
    # uniform from 0 to twice the mean: E[l^2] / E[l] = 4/3 of the mean
    assert weighted_length(spread_lengths((1024,), 1.0, SEQ)) == pytest.approx(1024 * 4 / 3, rel=0.01)


def test_ranks_wait_for_the_one_with_the_longest_documents() -> None:
    assert "imbalance" not in step(documents=1024).terms_s
    assert "imbalance" not in step(gpus=1, documents=1024, length_spread=1.0).terms_s
    waits = [
        step(gpus=gpus, batch=4 * gpus, documents=1024, length_spread=1.0).terms_s["imbalance"] for gpus in (2, 4, 8)
    ]
    assert 0 < waits[0] < waits[1] < waits[2]
    # weights that are shared out are waited for in every micro batch, gradients once a step
    once, every = (
        step(documents=1024, length_spread=1.0, zero=zero, framework="deepspeed").terms_s["imbalance"]
        for zero in (1, 3)
    )
    assert once < every


def test_consecutive_parts_of_a_sequence_wait_longer_than_zigzags() -> None:
    zigzag, ring = (
        step(cp=4, documents=512, length_spread=1.0, cp_algorithm=how, framework="fsdp2-compile", zero=3)
        for how in ("zigzag", "ring")
    )
    shares = [found.terms_s["imbalance"] / found.terms_s["attention"] for found in (zigzag, ring)]
    assert shares[0] < shares[1]


def test_the_work_of_random_documents_varies_as_drawn() -> None:
    """Documents are drawn until they fill the tokens; the last one counts as far as it is inside."""
    dice, lengths, tokens = random.Random(3), (200.0, 400.0, 1600.0), 65536
    drawn = []
    for _ in range(4000):
        filled = work = 0.0
        while filled < tokens:
            length = dice.choice(lengths)
            inside = min(length, tokens - filled)
            work += length * inside
            filled += length
        drawn.append(work)
    mean = sum(drawn) / len(drawn)
    deviation = (sum((one - mean) ** 2 for one in drawn) / len(drawn)) ** 0.5 / mean
    assert mean == pytest.approx(tokens * weighted_length(lengths), rel=0.02)
    assert work_deviation(lengths, tokens) == pytest.approx(deviation, rel=0.06)


def test_no_rank_has_more_work_than_whole_sequences() -> None:
    lengths = (16.0, 8192.0)
    assert imbalance(lengths, SEQ, 8192.0, 4096) == (SEQ + 1) / (weighted_length(lengths) + 1)
    assert imbalance((), SEQ, 8192.0, 4096) == imbalance(lengths, SEQ, 8192.0, 1) == 1.0


def test_scores_of_the_whole_square_are_computed_by_unfused_attention() -> None:
    whole, short = (step(framework="megatron-2021", documents=length) for length in ((), 512))
    assert short.time_s == whole.time_s
    assert short.flop < whole.flop
    assert any("documents change nothing but FLOP" in note for note in short.notes)


@pytest.mark.parametrize(
    ("model", "values", "message"),
    [
        ("llama-3.1-8b", {"documents": 0}, "is not a whole number of tokens"),
        ("llama-3.1-8b", {"documents": 0.5}, "is not a whole number of tokens"),
        ("llama-3.1-8b", {"documents": [100, -1]}, "is not a whole number of tokens"),
        ("llama-3.1-8b", {"documents": [True]}, "is not a whole number of tokens"),
        ("llama-3.1-8b", {"length_spread": 0.5}, "there are none"),
        ("llama-3.1-8b", {"documents": 5, "length_spread": 1.5}, "is not from 0 to 1"),
        ("llama-3.1-8b", {"documents": 5, "length_spread": "wide"}, "is no number"),
        ("t5-3b", {"documents": 512, "zero": 0, "seq": 512}, "not modelled"),
    ],
)
def test_documents_that_are_none(model: str, values: dict[str, object], message: str) -> None:
    with pytest.raises(UsageError) as caught:
        step(model=model, **values)
    assert message in str(caught.value)


def test_a_plan_in_python_takes_a_number_or_a_list() -> None:
    made = pm.TrainingPlan(batch=8, seq=4096, documents=512)
    assert made == pm.TrainingPlan(batch=8, seq=4096, documents=[512])
    assert made.changed(documents=()) == pm.TrainingPlan(batch=8, seq=4096)
    spread = made.changed(length_spread=0.5)
    assert spread.changed(documents=()).length_spread == 0.0


def test_layers_with_a_state_wait_for_no_long_documents():
    """RWKV has no attention to keys: its steps are the same with and without. A hybrid waits for its few other layers.

    Nemotron-H has attention in 4 layers and states in 24.
    """
    lengths = {"documents": (100, 4000), "length_spread": 0.2, "zero": 1, "framework": "megatron"}
    whole, packed = (step(model="rwkv-7-1.5b", seq=4096, **more) for more in ({}, lengths))
    assert packed.terms_s == whole.terms_s
    assert any("documents change nothing" in note for note in packed.notes)
    hybrid, alone = step(model="nemotron-h-8b", **lengths), step(**lengths)
    shares = [found.terms_s["imbalance"] / found.terms_s["attention"] for found in (hybrid, alone)]
    assert 0 < shares[0] < 0.6 * shares[1]


def test_both_stages_of_a_gpu_of_dualpipe_wait_as_those_of_1f1b():
    lengths = {"documents": (100, 4000), "pp": 4, "batch": 64, "zero": 1}
    waits = [step(schedule=schedule, **lengths) for schedule in ("1f1b", "dualpipe")]
    shares = [found.terms_s["imbalance"] / found.terms_s["attention"] for found in waits]
    assert shares[1] == pytest.approx(shares[0])
