"""Training of hybrids: layers that keep a state of the sequence, attend to keys, or do both."""

from __future__ import annotations

import dataclasses

import pytest

from perfmodel.cluster.cluster import Cluster
from perfmodel.cluster.collectives import exchange_time
from perfmodel.errors import UsageError
from perfmodel.hardware_catalog import hardware
from perfmodel.training.activations import kept_by_layer, layer_activations
from perfmodel.training.adapters import adapter_parameters
from perfmodel.training.constants import constants
from perfmodel.training.exchange import tensor_exchange
from perfmodel.training.flops import core_flop, step_flop
from perfmodel.training.framework import find_framework
from perfmodel.training.held import held_parameters
from perfmodel.training.kept import slice_of
from perfmodel.training.layer import layer_work
from perfmodel.training.memory import training_memory
from perfmodel.training.plan import TrainingPlan
from perfmodel.training.setup import Setup
from perfmodel.training.states import state_flop, state_stream_bytes, states_kept
from perfmodel.training.step import train
from perfmodel.workloads.catalog import find_model, named_model
from perfmodel.workloads.layer_kinds import Kind, layer_kinds

H100 = hardware("h100-sxm5-80gb")
DENSE = named_model("qwen3.5-9b")
NEXT = named_model("qwen3-next-80b-a3b")


MAMBA = find_model(
    "layers=8 hidden=2048 heads=16 kv_heads=4 head_dim=128 ffn=8192 vocab=32000 gated=false rotary=false "
    "learned_positions=false bias=false norm=rms linear_rule=mamba2 linear_layers=6 linear_heads=64 linear_key_heads=8 "
    "linear_head_dim=128 linear_value_dim=64 bare_layers=2"
)
#: the same with experts of half the width of the residual stream, and two layers without them
LATENT = dataclasses.replace(
    MAMBA, experts=16, top_k=4, expert_ffn=1024, shared_ffn=2048, expert_hidden=1024, name="latent"
)
KIMI = dataclasses.replace(MAMBA, linear_rule="kimi_delta", bare_layers=0, linear_heads=16, linear_key_heads=16)
LIGHTNING = dataclasses.replace(KIMI, linear_rule="lightning", linear_conv=0)
CONVOLVED = dataclasses.replace(
    MAMBA, linear_rule="short_conv", linear_heads=16, linear_key_heads=16, linear_head_dim=128, linear_value_dim=128,
    linear_conv=3,
)  # fmt: skip
#: every layer attends to keys and keeps a state; and the same without states
FALCON = named_model("falcon-h1-7b")
ATTENDING = dataclasses.replace(FALCON, linear_layers=0, joint_layers=0)
#: one layer attends, the others keep states
APART = dataclasses.replace(FALCON, linear_layers=43, joint_layers=0)
RULES = [MAMBA, LATENT, KIMI, LIGHTNING, CONVOLVED, FALCON]
#: states alone, without keys and MLPs: of Mamba of the first kind and of the second
SCAN = find_model("type=mamba layers=8 hidden=2048 vocab=32000 state_bias=false state_output_bias=false")
ALONE = find_model(
    "type=mamba2 layers=8 hidden=2048 vocab=32000 linear_heads=64 linear_key_heads=2 linear_value_dim=64"
)
NAMES = ["mamba2", "latent experts", "kimi_delta", "lightning", "short_conv", "falcon_h1"]
JOINT = Kind(linear=True, joint=True)


def setup(config=DENSE, gpus=8, **plan):
    plan = TrainingPlan(**{"batch": 64, "seq": 4096, "framework": "megatron-bridge", **plan})
    return Setup(config, Cluster.of(H100, gpus), plan, find_framework("megatron-bridge"), constants())


def test_the_last_of_four_layers_attends():
    kinds = layer_kinds(NEXT)
    assert [index for index, kind in enumerate(kinds) if not kind.linear] == list(range(3, 48, 4))
    assert all(kind.moe for kind in kinds)
    assert not any(kind.linear for kind in layer_kinds(named_model("llama-3.1-8b")))


def test_flop_by_hand():
    """Of a token and head 6 d e + 2 C (3 d + 2 e), d = e = 128, C = 64, in 24 layers of 32 heads; 8 layers attend."""
    each = 6 * 128 * 128 + 2 * 64 * 5 * 128
    assert state_flop(DENSE, 4096) == 24 * 32 * 4096 * each
    attending = core_flop(dataclasses.replace(DENSE, layers=8, linear_layers=0), 4096)
    for half, whole in zip(core_flop(DENSE, 4096), attending, strict=True):
        assert half == pytest.approx(whole + state_flop(DENSE, 4096))


def test_products_of_a_linear_layer_by_hand():
    shard, hidden, tokens = setup().shard, 4096, 4096
    linear = layer_work(H100, DENSE, shard, Kind(linear=True))
    keys, values = 16 * 128, 32 * 128
    weights = hidden * (2 * keys + 2 * values) + hidden * 2 * 32 + values * hidden + 3 * hidden * 12288
    assert linear.flop == 2 * tokens * weights
    attending = layer_work(H100, DENSE, shard, Kind())
    queries, heads = 16 * 256, 4 * 256
    assert attending.flop == 2 * tokens * hidden * (2 * queries + 2 * heads + queries + 3 * 12288)


def test_a_long_sequence_is_cheaper_in_a_linear_layer():
    short, long = (setup(seq=seq, batch=8).shard for seq in (2048, 65536))
    linear, attending = (
        [getattr(layer_work(H100, DENSE, shard, Kind(linear=linear)), core) for shard in (short, long)]
        for core, linear in (("states", True), ("core", False))
    )
    assert linear[1].forward_s < 0.2 * attending[1].forward_s
    # a fixed part of each kernel aside, its time is in proportion to the tokens
    assert 8 < linear[1].forward_s / linear[0].forward_s < 40
    assert linear[1].backward_s > linear[1].forward_s


def test_what_streams_and_is_kept_by_hand():
    tokens, keys, values = 100.0, 16 * 128, 32 * 128
    mixed = 2 * keys + values
    forward, backward = state_stream_bytes(DENSE, tokens, 2, 2.0)
    assert forward == pytest.approx([2 * 2 * 50 * mixed, 2 * 2 * 50 * 2 * keys, 3 * 2 * 50 * values])
    assert backward == pytest.approx([3 * 2 * 50 * mixed, 3 * 2 * 50 * 2 * keys, 5 * 2 * 50 * values])
    inputs, triangle, output = states_kept(DENSE, tokens, 2, 2.0)
    assert inputs == pytest.approx(50 * (2 * (2 * mixed + 2 * keys + values) + 8 * 32))
    assert triangle == pytest.approx(50 * 2 * 32 * 64)
    assert output == pytest.approx(50 * 4 * values)


def test_a_gate_keeps_itself_and_what_it_multiplies():
    part = slice_of(setup())
    plain = dataclasses.replace(DENSE, facts=dataclasses.replace(DENSE.architecture, output_gate=False))
    more = kept_by_layer(DENSE, part, Kind()).queries - kept_by_layer(plain, part, Kind()).queries
    assert more == 2 * 2 * part.tokens * 16 * 256


@pytest.mark.parametrize("plan", [{}, {"tp": 4}, {"pp": 4, "tp": 2}, {"pp": 2}])
@pytest.mark.parametrize("config", [DENSE, NEXT, *RULES], ids=["dense", "experts", *NAMES])
def test_all_parameters_are_held_once_and_some_by_each_tensor_parallel_rank(config, plan):
    cluster = Cluster.of(H100, 8)
    held = held_parameters(config, cluster, TrainingPlan(batch=64, seq=4096, framework="megatron-bridge", **plan))
    # tensor parallel ranks share out all but the experts, which all of them have whole
    tp = plan.get("tp", 1)
    total = sum((stage.dense + stage.outer) * tp + stage.experts for stage in held)
    if tp == 1:
        assert total == config.parameters
        return
    # each rank has norms, routers and ways to latent experts whole, and a little of what computes states and few keys
    whole = config.outer_norm_parameters + (2 * config.layers - config.bare_layers) * config.norm_parameters
    whole += config.moe_layers * (config.experts + 2 * config.expert_hidden) * config.hidden
    dense = config.parameters - config.moe_layers * config.experts * config.expert_parameters
    assert whole <= (total - config.parameters) / (tp - 1) < whole + 0.04 * dense


def test_adapters_stand_beside_the_matrices_of_both_kinds_of_layers():
    rank, hidden, keys, values = 16, 4096, 2048, 4096
    mlp = 3 * (hidden + 12288)
    linear = (2 * keys + 2 * values + hidden) + (2 * 32 + hidden) + (hidden + values)
    attending = (2 * 4096 + hidden) + 2 * (1024 + hidden) + (hidden + 4096)
    assert adapter_parameters(DENSE, rank) == rank * (32 * mlp + 24 * linear + 8 * attending)


def test_a_step_is_between_those_of_its_kinds_of_layers():
    """A hybrid's step takes less than that of a model all of whose layers attend to 32,768 keys."""
    cluster, plan = Cluster.of(H100, 8), TrainingPlan(batch=8, seq=32768, tp=8, sp=True, framework="megatron-bridge")
    every = dataclasses.replace(DENSE, linear_layers=0)
    hybrid, attending = (train(config, cluster, plan) for config in (DENSE, every))
    assert hybrid.time_s < attending.time_s
    assert hybrid.flop < attending.flop


def test_nobody_measured_linear_attention_and_the_interval_says_so():
    """Its kernels may take half or twice as long as predicted, which widens a step by their part of it."""
    cluster, plan = Cluster.of(H100, 8), TrainingPlan(batch=64, seq=4096, framework="megatron-bridge")
    every = dataclasses.replace(DENSE, linear_layers=0)
    hybrid, attending = (train(config, cluster, plan) for config in (DENSE, every))
    assert any("layers with a state" in note for note in hybrid.notes)
    assert not any("layers with a state" in note for note in attending.notes)
    assert hybrid.high_s / hybrid.time_s > attending.high_s / attending.time_s
    assert hybrid.low_s / hybrid.time_s < attending.low_s / attending.time_s


@pytest.mark.parametrize(
    ("plan", "said"),
    [({"cp": 2}, "cp = 2 with layers with a state"), ({"tp": 32}, "does not divide the 16 heads")],
)
def test_a_plan_that_linear_attention_does_not_allow_names_the_nearest(plan, said):
    with pytest.raises(UsageError, match=said) as error:
        train(DENSE, Cluster.of(H100, 64), TrainingPlan(batch=64, seq=4096, framework="megatron-bridge", **plan))
    assert "Nearest" in str(error.value)


def test_layers_without_an_mlp_alternate_with_the_others():
    kinds = layer_kinds(MAMBA)
    assert [kind.bare for kind in kinds] == [False, False, False, True] * 2
    assert [kind.blocks for kind in kinds] == [2, 2, 2, 1] * 2
    experts = layer_kinds(dataclasses.replace(LATENT, dense_layers=2))
    assert [(kind.moe, kind.bare) for kind in experts[:2]] == [(False, False)] * 2
    assert sum(kind.bare for kind in experts) == 2
    assert sum(kind.moe for kind in experts) == 4


def test_products_of_a_layer_with_mamba_by_hand():
    """Gate, x, B, C and steps in one product, and one after the states; no MLP in a bare layer."""
    shard, hidden, tokens = setup(MAMBA).shard, 2048, 4096
    values, states = 64 * 64, 8 * 128
    mamba = hidden * (2 * values + 2 * states + 64) + values * hidden
    for bare, mlp in ((False, 2 * hidden * 8192), (True, 0)):
        work = layer_work(H100, MAMBA, shard, Kind(linear=True, bare=bare))
        assert work.flop == 2 * tokens * (mamba + mlp)
        assert work.parameters == mamba + mlp + (1 if bare else 2) * hidden


def test_a_bare_layer_streams_keeps_and_launches_less():
    part, shard = slice_of(setup(MAMBA)), setup(MAMBA).shard
    whole, bare = (kept_by_layer(MAMBA, part, Kind(linear=True, bare=bare)) for bare in (False, True))
    assert bare.mlp == 0 < whole.mlp
    assert bare.norms == whole.norms / 3  # the input of a product, in place of two and the residual between
    works = [layer_work(H100, MAMBA, shard, Kind(linear=True, bare=bare)) for bare in (False, True)]
    assert works[1].streams_s < works[0].streams_s
    assert works[1].kernels == works[0].kernels - 2 - 3  # two products; a norm, an addition and an activation


def test_experts_of_another_width_by_hand():
    """Two products lead there and back; the experts' matrices and what is sent to them have their width."""
    shard, hidden, tokens = setup(LATENT).shard, 2048, 4096
    work = layer_work(H100, LATENT, shard, Kind(moe=True, linear=True))
    plain = layer_work(H100, dataclasses.replace(LATENT, expert_hidden=0), shard, Kind(moe=True, linear=True))
    assert work.expert_parameters == 16 * 2 * 1024 * 1024 == plain.expert_parameters / 2
    assert work.parameters - plain.parameters == 2 * hidden * 1024
    assert work.token_bytes == plain.token_bytes / 2 == tokens * 1024 * 2


@pytest.mark.parametrize("config", RULES, ids=NAMES)
def test_each_rule_trains(config):
    """The model's FLOP are 6 of each parameter and token, and what attention and states add."""
    cluster, plan = Cluster.of(H100, 8), TrainingPlan(batch=64, seq=4096, framework="megatron-bridge")
    step = train(config, cluster, plan)
    least = 6.0 * config.multiplied_parameters * 64 * 4096
    assert least < step.flop < 1.4 * least
    assert step.low_s < step.time_s < step.high_s


def test_states_of_mamba_by_hand():
    """A token of a head: 4 d e for the state, and in chunks of 128 tokens 2 C e; of a group 2 C d."""
    each = 64 * (4 * 128 * 64 + 2 * 128 * 64) + 8 * 2 * 128 * 128
    assert state_flop(MAMBA, 4096) == 6 * 4096 * each
    assert state_flop(CONVOLVED, 4096) == 0


def test_layers_with_both_are_among_those_that_attend():
    assert set(layer_kinds(FALCON)) == {JOINT}
    assert JOINT.attends
    assert JOINT.blocks == 2
    some = layer_kinds(dataclasses.replace(MAMBA, joint_layers=3))  # of 8 layers 6 keep a state, 5 attend
    assert sum(kind.linear for kind in some) == 6
    assert sum(kind.attends for kind in some) == 5
    assert sum(kind.joint for kind in some) == sum(kind.linear and kind.attends for kind in some) == 3


def test_a_layer_with_both_has_the_work_of_both_mixers_and_one_mlp():
    """Its products, states and attention are those of both; one norm feeds them, and what they give is summed."""
    shard, part, hidden = setup(FALCON).shard, slice_of(setup(FALCON)), 3072
    both, keys, states = (layer_work(H100, FALCON, shard, kind) for kind in (JOINT, Kind(), Kind(linear=True)))
    attention, mlp = 2 * hidden * 12 * 128 + 2 * hidden * 2 * 128, 3 * hidden * 12288
    mamba = hidden * (2 * 3072 + 2 * 256 + 24) + 3072 * hidden
    assert both.flop == 2 * 4096 * (attention + mamba + mlp)
    assert both.parameters == attention + mamba + mlp + 2 * hidden
    assert (both.core, both.states) == (keys.core, states.states)
    assert both.kernels == keys.kernels + 2 + 3 + 1  # two products; convolution, gate and sum; the states
    assert both.streams_s > max(keys.streams_s, states.streams_s)
    kept = [kept_by_layer(FALCON, part, kind) for kind in (JOINT, Kind(), Kind(linear=True))]
    assert kept[0].queries == kept[1].queries + kept[2].queries
    assert kept[0].values == kept[1].values + kept[2].values
    assert (kept[0].norms, kept[0].mlp) == (kept[1].norms, kept[1].mlp)


@pytest.mark.parametrize("plan", [{}, {"recompute": "full"}, {"framework": "torchtitan", "recompute": "selective-op"}])
def test_a_step_with_both_takes_more_time_and_memory_than_with_either(plan):
    cluster = Cluster.of(H100, 8)
    plan = TrainingPlan(**{"batch": 8, "seq": 8192, "framework": "megatron-bridge", "zero": 3, **plan})
    both, keys, states = (train(config, cluster, plan) for config in (FALCON, ATTENDING, APART))
    assert both.time_s > max(keys.time_s, states.time_s)
    assert both.flop > max(keys.flop, states.flop)
    peaks = [training_memory(config, cluster, plan).total_bytes for config in (FALCON, ATTENDING, APART)]
    assert peaks[0] > max(peaks[1:])


def test_attention_and_states_of_a_layer_both_count_as_flop():
    for both, keys in zip(core_flop(FALCON, 4096), core_flop(ATTENDING, 4096), strict=True):
        assert both == keys + state_flop(FALCON, 4096)


def test_unfused_attention_beside_a_state_is_recomputed_alone():
    part = slice_of(setup(FALCON))._replace(kernel="unfused")
    whole, left = (layer_activations(FALCON, part, JOINT, recompute).kept for recompute in ("none", "selective"))
    usual = [layer_activations(FALCON, part, Kind(), recompute).kept for recompute in ("none", "selective")]
    assert whole - left == usual[0] - usual[1] > 0
    plan = TrainingPlan(batch=2, seq=4096, recompute="selective")
    for config in (FALCON, APART):  # in the second one layer of 44 attends
        model, _, executed = step_flop(config, plan, "unfused")
        assert executed - model == 2 * (core_flop(config, 4096)[0] - state_flop(config, 4096))


def test_tensor_parallel_ranks_sum_what_each_mixer_gives():
    """An exchange follows each of three row-parallel products, of two in a layer without a state."""
    config = dataclasses.replace(FALCON, linear_key_heads=2)
    other = dataclasses.replace(config, linear_layers=0, joint_layers=0)
    plan = TrainingPlan(batch=64, seq=4096, tp=2, framework="huggingface")
    both, keys = (train(one, Cluster.of(H100, 8), plan).terms_s["tensor"] for one in (config, other))
    assert both == pytest.approx(1.5 * keys, rel=1e-6)


def test_adapters_stand_beside_the_matrices_of_both_mixers():
    rank, hidden = 16, 3072
    mamba = (2 * 3072 + 2 * 256 + 24 + hidden) + (hidden + 3072)
    assert adapter_parameters(FALCON, rank) == adapter_parameters(ATTENDING, rank) + 44 * rank * mamba


@pytest.mark.parametrize("config", [DENSE, MAMBA, KIMI, LIGHTNING], ids=["delta", "mamba2", "kimi_delta", "lightning"])
def test_tensor_parallel_ranks_gather_what_all_products_of_a_state_read_once(config):
    """One gather and one sum for the mixer, and one for the MLP; as an all-reduce each without sequence parallelism."""
    made = setup(config, tp=4, tp_overlap=False, sp=True)
    moved = 2.0 * made.shard.tokens * config.hidden
    gather, scatter, reduced = (
        exchange_time(made.groups.tensor, kind, moved) for kind in ("all_gather", "reduce_scatter", "all_reduce")
    )
    assert tensor_forward_s(made) == pytest.approx(2 * (gather + scatter))
    plain = setup(config, tp=4, tp_overlap=False, sp=False)
    work = layer_work(H100, config, plain.shard, Kind(linear=True))
    both = tensor_exchange(plain.groups, plain.shard, work, config.hidden, False, False, 0.0)
    assert both == pytest.approx((2 * reduced, 2 * reduced))


def tensor_forward_s(made: Setup) -> float:
    work = layer_work(H100, made.config, made.shard, Kind(linear=True))
    return tensor_exchange(made.groups, made.shard, work, made.config.hidden, False, False, 0.0)[0]


def test_an_input_that_several_products_read_is_cast_once():
    made = setup(KIMI, tp=4, sp=False, dtype="fp8")
    work = layer_work(H100, KIMI, made.shard, Kind(linear=True, bare=True))
    tokens, latent, values = made.shard.tokens, 2 * KIMI.linear_head_dim, KIMI.state_layer.value_width / 4
    assert work.cast_elements == pytest.approx(tokens * (KIMI.hidden + latent + values))


def test_a_scan_by_hand():
    """Four products, 7 FLOP of each number of a state and 8 of each channel; what backward reads of a token."""
    config, tokens, inner, rank = SCAN, 4096, 4096, 128
    work = layer_work(H100, config, setup(config).shard, Kind(linear=True, bare=True))
    matrices = 2048 * 2 * inner + inner * (rank + 32) + rank * inner + inner * 2048
    assert work.flop == 2 * tokens * matrices
    assert work.parameters == matrices + 2048
    assert state_flop(config, tokens) == 8 * tokens * inner * (7 * 16 + 8)
    kept = kept_by_layer(config, slice_of(setup(config)), Kind(linear=True, bare=True))
    # values before and after their convolution, gate, steps; queries and keys before and after; the output twice
    assert kept.queries == 2 * tokens * (4 * inner + 2 * 32)
    assert kept.values == 2 * tokens * 2 * inner


@pytest.mark.parametrize("config", [SCAN, ALONE], ids=["mamba", "mamba2"])
def test_states_alone_train(config):
    cluster, plan = Cluster.of(H100, 8), TrainingPlan(batch=64, seq=4096, framework="megatron-bridge")
    step = train(config, cluster, plan)
    least = 6.0 * config.multiplied_parameters * 64 * 4096
    assert least < step.flop < 1.4 * least
    assert step.flop == step.flop_full_attention == step.hardware_flop  # nothing is masked
    held = training_memory(config, cluster, plan).peak.parts["weights"]
    assert held == pytest.approx(2.0 * config.parameters)
    assert step.terms_s["attention"] > 0


def test_ranks_of_a_scan_are_refused():
    with pytest.raises(UsageError, match="tp = 2 with a selective scan"):
        train(SCAN, Cluster.of(H100, 8), TrainingPlan(batch=64, seq=4096, tp=2, framework="megatron-bridge"))
    halves = train(ALONE, Cluster.of(H100, 8), TrainingPlan(batch=64, seq=4096, tp=2, framework="megatron-bridge"))
    assert halves.terms_s["tensor"] > 0
