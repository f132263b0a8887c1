"""What memory-bound kernels and casts of a layer move, by hand."""

from __future__ import annotations

import dataclasses

import pytest

from perfmodel.cluster.cluster import Cluster
from perfmodel.hardware_catalog import hardware
from perfmodel.training.adapters import adapter_parameters
from perfmodel.training.constants import constants
from perfmodel.training.framework import find_framework
from perfmodel.training.layer import layer_work
from perfmodel.training.memory import training_memory
from perfmodel.training.plan import TrainingPlan
from perfmodel.training.setup import Setup
from perfmodel.training.shard import key_heads, key_value_width
from perfmodel.training.step import train
from perfmodel.training.streams import chains, stream_bytes
from perfmodel.workloads.catalog import named_model
from perfmodel.workloads.layer_kinds import DENSE, Kind

H100 = hardware("h100-sxm5-80gb")
LLAMA = named_model("llama-3.1-8b")
TOKENS, HIDDEN, QUERIES, KEYS = 4096, 4096, 4096, 1024


def shard(framework="megatron-bridge", **plan):
    plan = TrainingPlan(**{"batch": 64, "seq": TOKENS, "framework": framework, **plan})
    return Setup(LLAMA, Cluster.of(H100, 8), plan, find_framework(framework), constants()).shard


def moved(shard, config=LLAMA):
    return tuple(sum(kernels) for kernels in stream_bytes(H100, config, shard, DENSE))


def test_fused_kernels_move_each_tensor_once():
    """Elements of 2 B: residuals 2 in and 1 out twice, rotation in and out, gated activation 2 in and 1 out, or 3, 2.

    A dropout reads and writes a mask of a byte forward, and gradient, mask and result backward.
    """
    plain = shard()._replace(
        norm_bytes=(0.0, 0.0), rotary_bytes=(4.0, 4.0), gate_bytes=(6.0, 10.0), copies_queries=False, dropout=False
    )
    around = TOKENS * (2 * 6 * HIDDEN + 4 * (QUERIES + KEYS))
    forward, backward = around + 6 * TOKENS * LLAMA.ffn, around + 10 * TOKENS * LLAMA.ffn
    assert moved(plain) == pytest.approx((forward, backward))
    dropped = moved(plain._replace(dropout=True))
    assert dropped == pytest.approx((forward + 2 * TOKENS * HIDDEN, backward + 2 * 5 * TOKENS * HIDDEN))
    # a kernel of its own reads and writes the state forward, too
    apart = moved(plain._replace(dropout=True, fused_dropout=False))
    assert apart == pytest.approx((dropped[0] + 2 * 4 * TOKENS * HIDDEN, dropped[1]))
    # norms of 4 B, and 8 backward; a norm of rows that are slower counts as a longer copy
    normed = moved(plain._replace(norm_bytes=(4.0, 8.0)))
    assert normed[0] - forward >= 2 * 4 * TOKENS * HIDDEN
    assert normed[1] - backward == pytest.approx(2 * (normed[0] - forward))


def test_tokens_of_experts_are_sorted_there_and_back():
    mixtral = named_model("mixtral-8x7b")
    forward, backward = stream_bytes(H100, mixtral, shard(), Kind(moe=True))
    there_and_back = [4 * TOKENS * mixtral.top_k * mixtral.hidden] * 2
    assert forward[-2:] == backward[-2:] == there_and_back


def test_what_sorts_weighs_and_adds_up_copies_of_tokens_is_counted_for_each_copy():
    """Kernels that gather, permute, cast and weigh each of the k copies of a token, of h elements: 32 B and 42 B."""
    mixtral = named_model("mixtral-8x7b")
    fused, apart = shard(), shard()._replace(routed_bytes=(32.0, 42.0))
    routed = TOKENS * mixtral.top_k * mixtral.hidden
    for place, more in ((0, 32 - 8), (1, 42 - 8)):
        before, after = (sum(stream_bytes(H100, mixtral, one, Kind(moe=True))[place]) for one in (fused, apart))
        assert after - before == pytest.approx(more * routed)
        # kernels of about 7 B: two halves of 16 B are one more each than fused ones, of 21 B two more
        kernels = [chains(mixtral, one, place, Kind(moe=True)) for one in (fused, apart)]
        assert kernels[1] - kernels[0] == (2, 4)[place]
    assert moved(fused) == moved(apart)  # a dense layer has no experts
    wide = [one._replace(dtype="fp32") for one in (fused, apart)]
    before, after = (sum(stream_bytes(H100, mixtral, one, Kind(moe=True))[0]) for one in wide)
    assert after - before == pytest.approx(2 * (32 - 8) * routed)


def test_grouped_queries_and_values_are_copied_and_their_gradients_joined():
    with_copies, without = (moved(shard()._replace(copies_queries=flag)) for flag in (True, False))
    assert with_copies[0] - without[0] == pytest.approx(4 * TOKENS * (QUERIES + KEYS))
    assert with_copies[1] - without[1] == pytest.approx(4 * TOKENS * (QUERIES + 2 * KEYS))


def test_a_squared_relu_in_separate_kernels_moves_8_and_20_bytes():
    plain = dataclasses.replace(LLAMA, activation="relu2", facts=dataclasses.replace(LLAMA.architecture, gated=False))
    fused, apart = (moved(shard()._replace(square_bytes=sizes), plain) for sizes in ((4.0, 6.0), (8.0, 20.0)))
    inner = TOKENS * LLAMA.ffn
    assert (apart[0] - fused[0], apart[1] - fused[1]) == pytest.approx((4 * inner, 14 * inner))


def test_a_ring_joins_its_parts():
    """Two ranks: 3.5 of 2 whole steps, of 2 in and 1 out of 2 B."""
    ring, ulysses = (moved(shard(cp=2, cp_algorithm=name)) for name in ("zigzag", "ulysses"))
    one = 6 * 7 / 4 * TOKENS / 2
    assert ring[0] - ulysses[0] == pytest.approx(one * QUERIES)
    assert ring[1] - ulysses[1] == pytest.approx(one * (QUERIES + 2 * KEYS))


def test_sequence_parallel_ranks_cast_their_share_of_what_they_gather():
    ranks = 4
    parallel = shard(tp=ranks, dtype="fp8")
    assert parallel.sp
    whole, shared = (layer_work(H100, LLAMA, parallel._replace(gathers_cast=flag), DENSE) for flag in (False, True))
    gathered = 2 * TOKENS * HIDDEN  # inputs of queries and of the MLP; as many gradients of outputs
    left = (1 - 1 / ranks) * gathered
    assert whole.cast_elements - shared.cast_elements == pytest.approx(left)
    assert whole.cast_backward_elements - shared.cast_backward_elements == pytest.approx(left)
    assert (whole.gathered_elements, shared.gathered_elements) == (0, 2 * gathered)
    alone = layer_work(H100, LLAMA, shard(dtype="fp8"), DENSE)
    assert alone.cast_elements == pytest.approx(TOKENS * (2 * HIDDEN + QUERIES + LLAMA.ffn))


def test_gradients_that_are_added_up_are_read_in_their_dtype():
    wide, narrow, none = (
        layer_work(H100, LLAMA, shard()._replace(accumulates=adds, main_gradients=dtype), DENSE).accumulate_s
        for adds, dtype in ((True, "fp32"), (True, "bf16"), (False, "fp32"))
    )
    assert wide == pytest.approx(2 * narrow, rel=0.05)
    assert none == 0


def test_values_of_another_width_than_keys_count_as_they_are():
    """Keys of 128 and values of 64: 8 of each are 1,024 and 512 wide, an eighth of it on 16 ranks."""
    config = dataclasses.replace(LLAMA, value_head_dim=64)
    values = KEYS / 2
    assert (key_heads(config, 4), key_heads(config, 16)) == (2, 1)
    assert key_value_width(config, 4) == (KEYS + values) / 4
    assert key_value_width(config, 16) == (KEYS + values) / 8
    with_copies, without = (moved(shard()._replace(copies_queries=flag), config) for flag in (True, False))
    assert with_copies[0] - without[0] == pytest.approx(4 * TOKENS * (QUERIES + values))
    assert with_copies[1] - without[1] == pytest.approx(4 * TOKENS * (QUERIES + KEYS + values))
    biased, plain = (
        moved(shard()._replace(bias=True), dataclasses.replace(config, qkv_bias=bias)) for bias in (True, False)
    )
    width = QUERIES + KEYS + values + 2 * HIDDEN + LLAMA.ffn
    assert biased[1] - plain[1] == pytest.approx(2 * TOKENS * width)
    wide, narrow = (layer_work(H100, one, shard(), DENSE).parameters for one in (LLAMA, config))
    assert wide - narrow == HIDDEN * (values + QUERIES / 2)  # of values, and of the output


def test_kernels_counted_in_fp32_are_stated_for_elements_of_two_bytes():
    """A shard's counts are of 16 bits, and `stream_bytes` doubles them in fp32: to the 28 B and 36 B of the file."""
    counted = find_framework("ddp-eager").unmixed["fp32"]
    wide = shard("ddp-eager", dtype="fp32")
    assert (counted.rms_norm_bytes, counted.rotary_bytes) == ((28.0, 122.0), (36.0, 36.0))
    assert (wide.norm_bytes, wide.rotary_bytes) == ((14.0, 61.0), (18.0, 18.0))
    still = wide._replace(rotary_bytes=(0.0, 0.0))
    heads = TOKENS * (QUERIES + KEYS)
    assert [one - other for one, other in zip(moved(wide), moved(still), strict=True)] == [36 * heads, 36 * heads]


@pytest.mark.parametrize("framework", ["huggingface", "ddp-eager"])
@pytest.mark.parametrize("change", [{"optimizer": "adam-bf16"}, {"lora": 16}])
def test_weights_in_16_bits_are_not_cast(framework, change):
    """Autocast over fp32 weights casts them, and keeps the residuals that norms read in fp32."""
    held, cast = shard(framework, **change), shard(framework)
    assert held.norm_bytes < cast.norm_bytes
    assert held.rotary_bytes < cast.rotary_bytes
    plan = TrainingPlan(batch=8, seq=TOKENS, framework=framework, zero=0, **change)
    cluster = Cluster.of(H100, 8)
    parts = training_memory(LLAMA, cluster, plan).peak.parts
    assert parts["copies"] == 0
    adapters = adapter_parameters(LLAMA, plan.lora) if plan.lora else 0.0
    assert parts["weights"] == 2 * (LLAMA.parameters + adapters)
    wide = plan.changed(optimizer="adam", lora=0)
    faster = [train(LLAMA, cluster, one).terms_s["memory_bound"] for one in (plan, wide)]
    assert faster[0] < faster[1]


@pytest.mark.parametrize("framework", ["huggingface", "ddp-eager", "deepspeed", "torchtune", "fsdp2-eager"])
def test_norms_in_fp32_are_not_cast(framework):
    """Under autocast most of what an RMSNorm moves is fp32 already, or casts to it: fp32 alone is not twice of it."""
    wide, mixed = shard(framework, dtype="fp32"), shard(framework)
    for place in (0, 1):
        assert wide.norm_bytes[place] < mixed.norm_bytes[place]
        assert 2 * wide.rotary_bytes[place] <= 2 * mixed.rotary_bytes[place]
    if framework in ("huggingface", "ddp-eager"):
        # square 8, mean 4, scale 8, weight 8 of fp32 elements
        assert 2 * wide.norm_bytes[0] == 28
        assert moved(wide)[0] - moved(wide._replace(norm_bytes=(0.0, 0.0)))[0] == 2 * 28 * TOKENS * HIDDEN


@pytest.mark.parametrize("framework", ["ddp-compile", "megatron"])
def test_fused_norms_in_fp32_move_twice_as_much(framework):
    assert shard(framework, dtype="fp32").norm_bytes == shard(framework).norm_bytes
