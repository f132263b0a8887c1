"""An encoder with a decoder: its parameters, FLOP, exchanges and activations by hand."""

from __future__ import annotations

import dataclasses

import pytest

from perfmodel.cluster.cluster import Cluster
from perfmodel.errors import UsageError
from perfmodel.hardware_catalog import hardware
from perfmodel.training.adapters import adapter_bytes, adapter_parameters
from perfmodel.training.flops import core_flop, step_flop
from perfmodel.training.held import held_parameters
from perfmodel.training.layer import layer_work
from perfmodel.training.memory import training_memory
from perfmodel.training.plan import TrainingPlan
from perfmodel.training.search import full_step, search
from perfmodel.training.shard import Shard
from perfmodel.training.space import default_space
from perfmodel.training.stages import encoder_stages, gpu_layers
from perfmodel.training.step import train
from perfmodel.workloads.catalog import named_model
from perfmodel.workloads.layer_kinds import DENSE, Kind

T5, BART = named_model("t5-large"), named_model("bart-base")
H100 = hardware("h100-sxm5-80gb")
ONE = Cluster.of(H100, 1)
PLAN = TrainingPlan(batch=8, seq=128, encoder_seq=512)


@pytest.mark.parametrize(
    ("name", "parameters"),  # of T5ForConditionalGeneration and BartForConditionalGeneration
    [
        ("t5-small", 60_506_624), ("t5-base", 222_903_552), ("t5-large", 737_668_096), ("t5-3b", 2_851_598_336),
        ("t5-11b", 11_307_321_344), ("bart-base", 139_420_416), ("bart-large", 406_291_456),
    ],
)  # fmt: skip
def test_parameters_are_those_of_the_published_models(name, parameters):
    config = named_model(name)
    assert config.parameters == parameters
    held = held_parameters(config, ONE, PLAN.changed(framework="huggingface"))[0]  # which pads no vocabulary
    assert held.total == parameters


def test_flop_by_hand():
    """Each stack multiplies its own tokens, keys and values of the decoder's attention those of the encoder."""
    h, f, layers, a, d, vocab, n, m = 1024, 4096, 24, 16, 64, 32128, 128, 512
    encoder = layers * (4 * h * a * d + 2 * h * f)
    decoder = layers * (4 * h * a * d + 2 * h * a * d + 2 * h * f) + vocab * h
    cross_keys = layers * 2 * h * a * d
    weights = 2 * (m * (encoder + cross_keys) + n * decoder)
    square = 4 * a * d * layers * (m * m + n * m)
    causal, whole = 4 * a * d * layers * n * (n + 1) / 2, 4 * a * d * layers * n * n
    model, full, executed = step_flop(T5, PLAN)
    assert model == pytest.approx(3 * 8 * (weights + square + causal), rel=2e-3)  # norms multiply too
    assert full - model == pytest.approx(3 * 8 * (whole - causal))
    assert executed == model
    assert core_flop(T5, n, m)[0] == pytest.approx(square + causal)


def test_a_layer_of_the_decoder_is_its_products():
    step = train(T5, ONE, PLAN)
    assert step.tokens == 8 * (128 + 512)
    shard = Shard(
        tokens=128.0, sequences=1.0, seq=128, tp=1, ep=1, etp=1, cp=1, sp=False, dtype="bf16", kernel="unfused",
        softmax_passes=1, dropout=False, bias=False, main_gradients="fp32", norm_bytes=(4.0, 6.0),
        rotary_bytes=(4.0, 4.0), gate_bytes=(6.0, 10.0),
    )  # fmt: skip
    alone = layer_work(H100, T5, shard, DENSE)
    both = layer_work(H100, T5, shard._replace(cross_seq=512), DENSE)
    assert both.flop - alone.flop == 2.0 * (2 * 128 + 2 * 512) * 1024 * 1024
    assert both.core.flop - alone.core.flop == pytest.approx(4.0 * 1024 * 128 * 512)
    assert both.parameters - alone.parameters == 4 * 1024 * 1024 + 1024


def test_more_of_the_encoder_is_never_faster_nor_smaller():
    steps = [full_step(T5, ONE, PLAN.changed(encoder_seq=length)) for length in (64, 256, 512, 2048)]
    times, sizes = [step.time_s for step in steps], [step.memory_bytes["activations"] for step in steps]
    assert times == sorted(times)
    assert sizes == sorted(sizes)
    assert full_step(T5, ONE, PLAN.changed(encoder_seq=0)).tokens == 2 * 8 * 128


def test_an_encoder_costs_as_a_stack_of_one():
    """A decoder of no width beside it: what is left of BART is an encoder's step."""
    encoder = BART.encoder
    assert encoder is not None
    assert encoder.layers * encoder.dense_layer_parameters == BART.encoder_parameters
    assert not encoder.architecture.causal
    longer = [train(BART, ONE, PLAN.changed(encoder_seq=length)).flop for length in (512, 513)]
    slope = 3 * 8 * (2 * (BART.encoder_parameters + BART.cross_key_parameters) + 4 * 768 * 6 * (2 * 512 + 1 + 128))
    assert longer[1] - longer[0] == pytest.approx(slope)


def test_activations_by_hand():
    """An encoder layer keeps 34 T h of GPT's, unfused, and the scores of its own square (Korthikanti, no dropout)."""
    plan = PLAN.changed(batch=1, encoder_seq=512, framework="megatron-2021", optimizer="none", dropout=False)
    parts = training_memory(BART, ONE, plan).stages[0].parts
    h, a, layers, n, m = 768, 12, 6, 128, 512
    mlp, own = 2 * 8 * h, 2 * (1 + 3 + 4) * h  # inside the MLP; the input, norms and residual, and q, k, v, output
    encoder = m * (own + mlp) + 2 * a * m * m
    decoder = n * (own + mlp) + 2 * a * n * n
    cross = n * 2 * (2 + 2) * h + m * 2 * 2 * h + 2 * a * n * m
    assert parts["activations"] == pytest.approx(layers * (encoder + decoder + cross) + 2 * m * h, rel=0.02)


def test_tensor_parallel_ranks_exchange_for_both_stacks():
    cluster = Cluster.of(H100, 4)
    alone = dataclasses.replace(T5, encoder_layers=0)
    for overlap in (False, True):
        plan = PLAN.changed(tp=4, tp_overlap=overlap)
        assert (
            train(T5, cluster, plan).terms_s["tensor"]
            > train(alone, cluster, plan.changed(encoder_seq=0)).terms_s["tensor"]
        )
    held = held_parameters(T5, cluster, plan)[0]
    assert held.total == pytest.approx(T5.parameters / 4, rel=0.01)


@pytest.mark.parametrize(
    ("plan", "said"),
    [
        ({"pp": 2, "vp": 2}, "interleaves the stages of one stack only. Nearest: vp=1"),
        ({"cp": 2}, "does not split the sequences of both .*Nearest: cp=1"),
        ({"pp": 2, "stages": (12, 12)}, "sum to 24 layers, the model has 48. Correct the stages."),
        ({"tp": 3, "batch": 6}, "does not divide"),
    ],
)
def test_plans_that_are_none(plan, said):
    with pytest.raises(UsageError, match=said):
        train(T5, Cluster.of(H100, 6 if "tp" in plan else 2), PLAN.changed(**plan))


def test_an_encoder_s_sequence_needs_an_encoder_and_positions():
    with pytest.raises(UsageError, match="no encoder"):
        train(named_model("gpt2"), ONE, PLAN)
    with pytest.raises(UsageError, match="beyond the model's 1024 positions"):
        train(BART, ONE, PLAN.changed(encoder_seq=2048))
    assert train(T5, ONE, PLAN.changed(encoder_seq=2048)).time_s > 0  # relative positions


def test_a_search_tries_pipelines_of_it_without_virtual_stages():
    space = default_space(T5, Cluster.of(H100, 16), PLAN)
    assert (space.pp, space.vp, space.cp) == ((1, 2, 4, 8, 16), (1,), (1,))
    assert "selective" in space.recompute  # its attention keeps scores


def test_adapters_of_both_stacks_by_hand():
    # T5-large: q, k, v, o of 1024 x 1024 and an MLP of 4096 in 24 layers of each stack, attention to the encoder too
    square, mlp, rank = 8 * 2 * 1024, 8 * 2 * (1024 + 4096), 8
    assert adapter_parameters(T5, rank) == 24 * (4 * square + mlp) + 24 * (8 * square + mlp)
    tokens, cross = 128, 512
    own = tokens * (6 * 1024 + 1024 + 4096) + cross * 2 * 1024
    forward, backward = adapter_bytes(T5, DENSE, tokens, 1, 2.0, cross)
    assert (forward, backward) == (2 * 7 * own, 2 * 9 * own)
    whole, frozen = (train(T5, ONE, PLAN.changed(lora=lora)) for lora in (0, rank))
    assert frozen.flop < 0.75 * whole.flop
    assert frozen.terms_s["products"] < 0.75 * whole.terms_s["products"]
    held = training_memory(T5, ONE, PLAN.changed(lora=rank)).peak.parts
    assert held["gradients"] < 0.02 * held["weights"] * 2


@pytest.mark.parametrize(("pp", "first"), [(1, 0), (2, 1), (3, 1), (4, 2), (8, 4)])
def test_the_encoder_is_on_the_first_stages(pp, first):
    placed = gpu_layers(T5, PLAN.changed(pp=pp))
    encoder = [gpu.get(Kind(encoder=True), 0) for gpu in placed]
    decoder = [gpu.get(Kind(), 0) for gpu in placed]
    assert (sum(encoder), sum(decoder)) == (24, 24)
    assert encoder_stages(T5, PLAN.changed(pp=pp)) == first
    if first:
        assert all(encoder[:first])
        assert not any(encoder[first:]) | any(decoder[:first])


def test_stages_of_both_stacks_are_those_of_the_plan():
    uneven = PLAN.changed(pp=3, stages=(24, 14, 10))
    placed = gpu_layers(T5, uneven)
    assert [gpu.get(Kind(encoder=True), 0) for gpu in placed] == [24, 0, 0]
    assert [gpu.get(Kind(), 0) for gpu in placed] == [0, 14, 10]
    cluster = Cluster.of(H100, 4)
    same = PLAN.changed(batch=64, pp=4, stages=(12, 12, 12, 12))
    assert train(T5, cluster, same).time_s == train(T5, cluster, same.changed(stages=())).time_s
    worse = train(T5, cluster, same.changed(stages=(24, 12, 10, 2)))
    assert worse.time_s > train(T5, cluster, same).time_s
    assert gpu_layers(T5, PLAN.changed(stages=(48,))) == gpu_layers(T5, PLAN)


@pytest.mark.parametrize(
    ("stages", "said"), [((24, 20), "sum to 44 layers, the model has 48"), ((20, 28), "none ends with the 24 layers")]
)
def test_stages_end_with_the_encoder(stages, said):
    with pytest.raises(UsageError, match=said):
        train(T5, Cluster.of(H100, 2), PLAN.changed(batch=64, pp=2, stages=stages))


def test_a_pipeline_of_both_stacks_by_hand():
    """Its bubble is one micro batch of the other stage; stages hold both stacks and a table each, and one the head."""
    plan = PLAN.changed(batch=64, pp=2)
    one, two = train(T5, ONE, PLAN.changed(batch=64)), train(T5, Cluster.of(H100, 2), plan)
    assert two.time_s < one.time_s
    assert two.terms_s["sends"] > 0
    stages = [forward + backward for forward, backward in zip(two.stage_forward_s, two.stage_backward_s, strict=True)]
    assert two.terms_s["bubble"] == pytest.approx(min(stages))
    held = held_parameters(T5, Cluster.of(H100, 2), plan)
    assert held[0].dense == T5.encoder_parameters
    table = T5.vocab * T5.hidden
    assert sum(part.total for part in held) == pytest.approx(T5.parameters + 2 * table, rel=1e-3)
    memory = training_memory(T5, Cluster.of(H100, 2), plan)
    alone = training_memory(T5, ONE, PLAN.changed(batch=64))
    assert memory.stages[0].parts["weights"] < alone.peak.parts["weights"]
    assert any(setup.plan.pp > 1 for setup in _small_search())


def _small_search():
    cluster, plan = Cluster.of(H100, 2), PLAN.changed(batch=64)
    space = default_space(T5, cluster, plan, micro_batch=(1, 8), zero=(1,), recompute=("none",))
    return search(T5, [cluster], plan, space).best
