"""Training of models whose layers with a window have other heads than those that attend to all keys."""

from __future__ import annotations

import dataclasses

import pytest

from perfmodel.cluster.cluster import Cluster
from perfmodel.errors import UsageError
from perfmodel.hardware_catalog import hardware
from perfmodel.training.adapters import adapter_parameters
from perfmodel.training.constants import constants
from perfmodel.training.flops import core_flop
from perfmodel.training.framework import find_framework
from perfmodel.training.held import held_parameters
from perfmodel.training.memory import training_memory
from perfmodel.training.micro_batch import INDEX, layer_passes
from perfmodel.training.plan import TrainingPlan
from perfmodel.training.setup import Setup
from perfmodel.training.step import train
from perfmodel.workloads.catalog import find_model, named_model
from perfmodel.workloads.layer_kinds import Kind

H100 = hardware("h100-sxm5-80gb")
WORDS = "layers=12 hidden=2048 heads=16 kv_heads=2 head_dim=256 ffn=8192 vocab=32000 window=512 window_layers=10"
OTHER = find_model(f"{WORDS} window_kv_heads=8 window_head_dim=128 keys_are_values=true")
ALIKE = find_model(WORDS)
PLAN = {"batch": 64, "seq": 4096, "framework": "megatron-bridge"}


@pytest.mark.parametrize("plan", [{}, {"tp": 2}, {"pp": 2}])
def test_all_parameters_are_held_once(plan):
    held = held_parameters(OTHER, Cluster.of(H100, 8), TrainingPlan(**PLAN, **plan))
    tp = plan.get("tp", 1)
    total = sum((stage.dense + stage.outer) * tp + stage.experts for stage in held)
    norms = 2 * OTHER.layers * OTHER.norm_parameters + OTHER.outer_norm_parameters  # whole on every rank
    assert total == OTHER.parameters + (tp - 1) * norms


def test_attention_of_both_kinds_by_hand():
    """Two layers of 16 heads of 256 see half of all keys, ten of 128 at most 512; the square has all pairs."""
    seq = 4096
    pairs, windowed = seq * (seq + 1) / 2, 512 * 513 / 2 + (seq - 512) * 512
    half, whole = core_flop(OTHER, seq)
    assert half == pytest.approx(4 * 16 * (2 * 256 * pairs + 10 * 128 * windowed))
    assert whole == 4 * 16 * (2 * 256 + 10 * 128) * seq**2


def test_adapters_stand_beside_the_matrices_of_both_kinds():
    rank, hidden = 8, 2048
    full = (4096 + hidden) + (512 + hidden) + (hidden + 4096)
    narrow = (2048 + hidden) + 2 * (1024 + hidden) + (hidden + 2048)
    assert adapter_parameters(OTHER, rank) == rank * (2 * full + 10 * narrow + 12 * 3 * (hidden + 8192))


def test_smaller_heads_take_less_of_a_step():
    cluster, plan = Cluster.of(H100, 8), TrainingPlan(**PLAN)
    smaller = dataclasses.replace(ALIKE, window_head_dim=64)
    whole, less = (train(config, cluster, plan) for config in (ALIKE, smaller))
    assert less.time_s < whole.time_s
    assert less.flop < whole.flop


def test_ranks_share_out_the_heads_of_both_kinds():
    odd = dataclasses.replace(OTHER, window_heads=8)
    with pytest.raises(UsageError, match="does not divide the 8 heads of layers with a window"):
        train(odd, Cluster.of(H100, 16), TrainingPlan(**PLAN, tp=16))


def context_s(config, windowed, **plan):
    """What the exchanges of 8 context parallel ranks add to the passes of a layer [s]."""
    plan = TrainingPlan(**{**PLAN, "seq": 32768, "cp": 8, **plan})
    setup = Setup(config, Cluster.of(H100, 8), plan, find_framework(plan.framework), constants())
    passes = layer_passes(setup, Kind(windowed=windowed))
    return [float(each[INDEX["context"]]) for each in (passes.forward, passes.backward)]


@pytest.mark.parametrize("algorithm", ["ring", "ulysses"])
def test_context_parallel_ranks_exchange_the_heads_of_each_kind_of_layer(algorithm):
    """Eight heads of 128 in a layer with a window are twice as wide as two of 256 in the others."""
    own = context_s(OTHER, True, cp_algorithm=algorithm)
    assert own == context_s(OTHER.windowed, True, cp_algorithm=algorithm)
    assert context_s(OTHER, False, cp_algorithm=algorithm) == context_s(ALIKE, False, cp_algorithm=algorithm)
    if algorithm == "ring":
        assert own > context_s(ALIKE, True, cp_algorithm=algorithm)


def test_buffers_of_a_ring_hold_the_wider_keys_and_values():
    """Two buffers of 4,096 tokens in 16 bits: of layers with a window, whose heads are wider together."""
    cluster, plan = Cluster.of(H100, 8), TrainingPlan(**{**PLAN, "seq": 32768, "cp": 8})
    other, alike = (training_memory(config, cluster, plan).stages[0].parts for config in (OTHER, ALIKE))
    assert other["communication"] - alike["communication"] == 2 * 2 * 4096 * 2 * (8 * 128 - 2 * 256)


def test_ulysses_shares_out_the_heads_of_both_kinds():
    """16 heads on 16 ranks, and in layers with a window 24, which 16 does not divide."""
    more, plan = dataclasses.replace(OTHER, window_heads=24), TrainingPlan(**PLAN, tp=2, cp=8, cp_algorithm="ulysses")
    assert train(OTHER, Cluster.of(H100, 16), plan).time_s > 0
    with pytest.raises(UsageError, match=r"cp tp = 16 does not divide the 24 heads of layers with a window.*Nearest"):
        train(more, Cluster.of(H100, 16), plan)


def test_chunks_of_llama_4_have_half_of_a_window_s_pairs():
    """36 of 48 layers attend within 8,192 tokens: of 65,536 there are eight such pieces."""
    scout, seq = named_model("llama-4-scout"), 65536
    pairs, pieces = seq * (seq + 1) / 2, 8 * 8192 * 8193 / 2
    assert core_flop(scout, seq)[0] == pytest.approx(4 * 40 * 128 * (12 * pairs + 36 * pieces))
    sliding = dataclasses.replace(scout, facts=dataclasses.replace(scout.architecture, chunked=False))
    assert core_flop(scout, 8192) == core_flop(sliding, 8192)


@pytest.mark.parametrize("attention", ["fa2", "fa3"])
def test_attention_to_chunks_takes_the_time_of_its_pairs(attention):
    shorter = dataclasses.replace(ALIKE, window=1024, window_layers=12)
    pieces = dataclasses.replace(shorter, facts=dataclasses.replace(shorter.architecture, chunked=True))
    cluster, plan = Cluster.of(H100, 8), TrainingPlan(**{**PLAN, "seq": 16384}, attention=attention)
    times = [train(config, cluster, plan).terms_s["attention"] for config in (shorter, pieces)]
    window = 1024 * 1025 / 2 + (16384 - 1024) * 1024
    assert times[1] / times[0] == pytest.approx(16 * 1024 * 1025 / 2 / window)
