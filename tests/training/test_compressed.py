"""Training with compressed attention, hyper-connections and groups of heads (DeepSeek-V4)."""

from __future__ import annotations

import dataclasses

import pytest

import perfmodel as pm
from perfmodel.cluster.cluster import Cluster
from perfmodel.errors import UsageError
from perfmodel.training.activations import kept_by_layer
from perfmodel.training.compressed import compressed_core, residual_elements, score_flop
from perfmodel.training.flops import core_flop, step_flop
from perfmodel.training.held import held_parameters
from perfmodel.training.kept import slice_of
from perfmodel.training.layer import layer_work
from perfmodel.training.layer_matrices import held_weights
from perfmodel.training.memory import training_memory
from perfmodel.training.plan import TrainingPlan
from perfmodel.training.setup import setup_of
from perfmodel.training.step import train
from perfmodel.workloads.catalog import find_model, named_model
from perfmodel.workloads.layer_kinds import Kind, layer_kinds

B200 = pm.hardware("b200-sxm-180gb")
FLASH = named_model("deepseek-v4-flash")
PLAN = TrainingPlan(batch=256, seq=4096, ep=32, framework="megatron-bridge")
INDEXED, POOLED, WINDOWED = Kind(moe=True, indexed=True), Kind(moe=True, pooled=True), Kind(moe=True, windowed=True)


def setup(config=FLASH, gpus=128, **changes):
    return setup_of(config, Cluster.of(B200, gpus), PLAN.changed(**changes))


def test_flop_of_attention_by_hand():
    """Sums over 4,096 queries: windows of 128, one of 4 tokens up to 512, one of every 128; scores beside them."""
    window = 128 * 129 / 2 + (4096 - 128) * 128
    chosen = sum(min(n // 4, 512) for n in range(1, 4097))
    pooled = sum(n // 128 for n in range(1, 4097))
    scores = 2 * 64 * 128 * sum(n // 4 for n in range(1, 4097))
    pairs = 43 * window + 21 * chosen + 20 * pooled
    assert score_flop(FLASH, 4096) == scores
    assert core_flop(FLASH, 4096)[0] == pytest.approx(4 * 64 * 512 * pairs + 21 * scores, rel=1e-12)


def test_flop_of_a_token_are_nearly_those_that_megatron_counts():
    """759.28 TFLOP/s at 8,358.8 tokens/s (NVIDIA-NeMo/Megatron-Bridge pull 5724), with a layer for a second token.

    That layer has a window alone, 7 experts of 25.2 M, 107 M of attention, a matrix of 2 h^2, and a head of its own.
    """
    model, _, _ = step_flop(FLASH, TrainingPlan(batch=1, seq=4096))
    second = 6 * (7 * 3 * 4096 * 2048 + 107e6 + 2 * 4096**2 + 129280 * 4096) + 12 * 64 * 512 * 126
    assert model / 4096 + second == pytest.approx(759.28e12 / 8358.8, rel=0.02)


def test_a_window_alone_has_the_flop_of_other_models():
    shape = "layers=8 hidden=1024 heads=16 kv_heads=1 head_dim=128 window=256 vocab=32000 ffn=2048"
    usual, shared = find_model(shape), find_model(f"{shape} type=deepseek_v4")
    assert core_flop(shared, 4096) == core_flop(usual, 4096)


def test_without_scores_flop_grow_linearly_once_as_many_as_are_chosen_exist():
    config = dataclasses.replace(FLASH, index_head_dim=0, pool_layers=0, pool_ratio=0, layers=21, window_layers=0)
    each = [core_flop(config, seq)[0] for seq in (8192, 16384, 24576)]
    assert each[1] - each[0] == each[2] - each[1] == 4 * 21 * 64 * 512 * 8192 * 640


def test_a_layer_has_the_products_of_its_kind():
    one = setup()
    plain, indexed, pooled = (layer_work(B200, FLASH, one.shard, kind).products for kind in (WINDOWED, INDEXED, POOLED))
    assert {"latent_down", "qkv", "out_groups", "out", "attention_mixing", "mlp_mixing"} < set(plain)
    more = {"index_query", "index_weight", "pool_compressor", "index_compressor"}
    assert set(indexed) - set(plain) == more
    assert set(pooled) - set(plain) == {"pool_compressor"}
    groups = 1024 * 4096 * 8
    assert (
        held_weights(FLASH, one.shard, WINDOWED)
        - held_weights(dataclasses.replace(FLASH, output_groups=0, output_lora=0), one.shard, WINDOWED)
        == groups + 8192 * 4096 - 4096 * 32768
    )


def test_gpus_hold_all_parameters_between_them():
    """All but the correction of scores that the first three layers do not have, which counts."""
    for pp in (1, 2):
        held = held_parameters(FLASH, Cluster.of(B200, 128), PLAN.changed(pp=pp))
        whole = sum(one.dense + one.outer + one.experts * 32 for one in held)
        assert whole == pytest.approx(FLASH.parameters + 3 * 256, rel=1e-9)


def test_four_residual_streams_are_kept_and_moved():
    one = dataclasses.replace(FLASH, residual_streams=1)
    many, single = (kept_by_layer(config, slice_of(setup(config)), POOLED) for config in (FLASH, one))
    assert many.block_input == 4 * single.block_input == 4 * 2 * 4096 * 4096
    assert many.total > single.total
    assert residual_elements(1) == (3.0, 3.0)
    assert residual_elements(4) == (14.0, 23.0)
    full = [training_memory(config, Cluster.of(B200, 128), PLAN.changed(recompute="full")) for config in (FLASH, one)]
    kept = [memory.stages[0].parts["activations"] for memory in full]
    assert kept[0] == pytest.approx(4 * kept[1], rel=0.01)


def test_attention_costs_more_with_more_keys():
    shard = setup().shard
    window, pooled, indexed = (
        compressed_core(B200, FLASH, shard, kind).forward_s for kind in (WINDOWED, POOLED, INDEXED)
    )
    assert window < pooled < indexed
    short, long = (compressed_core(B200, FLASH, setup(seq=seq).shard, INDEXED).forward_s for seq in (4096, 16384))
    assert 4 * short < long < 16 * short


def test_a_step_says_that_its_kernels_were_not_measured():
    step = train(FLASH, Cluster.of(B200, 128), PLAN)
    assert any("No kernel of attention to compressed keys was measured" in note for note in step.notes)
    assert step.low_s < step.time_s < step.high_s
    named = train(FLASH, Cluster.of(B200, 128), PLAN.changed(attention="cudnn"))
    assert any("attention cudnn changes nothing" in note for note in named.notes)
    assert named.time_s == step.time_s


def test_stages_have_all_kinds_of_layers():
    kinds = layer_kinds(FLASH)
    counts = [sum(getattr(kind, name) for kind in kinds) for name in ("windowed", "indexed", "pooled")]
    assert counts == [2, 21, 20]
    assert train(FLASH, Cluster.of(B200, 128), PLAN.changed(pp=4, ep=8)).time_s > 0


def test_adapters_and_muon_know_the_matrices():
    for changes in ({"lora": 16}, {"optimizer": "muon"}):
        assert train(FLASH, Cluster.of(B200, 128), PLAN.changed(**changes)).time_s > 0


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"cp": 2}, "cp = 2 with keys that are compressed over tokens"),
        ({"tp": 16}, "tp = 16 does not divide the 8 groups of heads of the output"),
    ],
)
def test_what_is_not_modelled_is_refused(changes, said):
    with pytest.raises(UsageError) as error:
        train(FLASH, Cluster.of(B200, 128), PLAN.changed(**changes))
    assert said in str(error.value)
