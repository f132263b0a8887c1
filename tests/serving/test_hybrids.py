"""Serving of hybrids: some layers keep a state of each sequence, instead of keys or beside them."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

import perfmodel as pm
from perfmodel.errors import UsageError
from perfmodel.serving.deployment import Deployment
from perfmodel.serving.load import Fleet, server_of
from perfmodel.serving.speculation import Speculation
from perfmodel.workloads.catalog import named_model

H100 = pm.hardware("h100-sxm5-80gb")
NEXT = named_model("qwen3-next-80b-a3b")
#: every layer attends to keys and keeps a state; and the same without states
FALCON = named_model("falcon-h1-7b")
ATTENDING = dataclasses.replace(FALCON, linear_layers=0, joint_layers=0)


def deployed(config=NEXT, **options):
    return Deployment(config, H100, **{"engine": "vllm", "tp": 4, **options})


def test_memory_holds_the_weights_of_both_kinds_of_layers():
    memory, small = deployed().memory(), deployed(named_model("qwen3.5-9b"), tp=1).memory()
    # all but norms, convolutions and decays; each of four GPUs has the routers, and two of them each head of keys
    routers, keys = 3 * 48 * 512 * 2048, 12 * 2 * 2 * 256 * 2048
    assert 4 * memory.weights_bytes == pytest.approx(2 * (NEXT.parameters + routers + keys), rel=1e-4)
    assert small.weights_bytes == pytest.approx(2 * named_model("qwen3.5-9b").parameters, rel=2e-4)


def test_a_sequence_takes_its_keys_and_a_state():
    memory = deployed(states="fp32").memory()
    assert memory.kv_bytes_token_gpu == 12 * 2 * 1 * 256 * 2  # a head of keys on each of four GPUs that share two
    assert memory.state_bytes == pytest.approx(NEXT.state_bytes / 4)
    worth = memory.state_bytes / memory.kv_bytes_token_gpu
    assert memory.of_sequence(1000.0) == pytest.approx(1000 + worth)
    assert memory.max_batch(1000, 200) == int(memory.kv_tokens / (np.ceil(1100 + worth)))
    assert memory.moved_bytes(1000.0) == 1000 * memory.kv_bytes_token_gpu + 2 * memory.state_bytes


@pytest.mark.parametrize(
    ("model", "engine", "given", "dtype"),
    [
        ("qwen3-next-80b-a3b", "vllm", "", "bf16"),  # its configuration states none, and vLLM takes the model's
        ("qwen3-next-80b-a3b", "trtllm", "", "bf16"),
        ("qwen3-next-80b-a3b", "sglang", "", "fp32"),
        ("qwen3-next-80b-a3b", "llama.cpp", "", "fp32"),
        ("qwen3.5-35b-a3b", "vllm", "", "fp32"),  # mamba_ssm_dtype
        ("nemotron-3-nano-30b-a3b", "vllm", "", "fp32"),  # mamba_ssm_cache_dtype
        ("kimi-linear-48b-a3b", "vllm", "", "fp32"),
        ("granite-4.0-h-tiny", "vllm", "", "bf16"),
        ("qwen3.5-35b-a3b", "vllm", "bf16", "bf16"),
        ("granite-4.0-h-tiny", "vllm", "fp32", "fp32"),
    ],
)
def test_states_have_the_dtype_that_is_given_or_the_models_or_the_engines(model, engine, given, dtype):
    deployment = deployed(named_model(model), engine=engine, tp=1, states=given, kv_tokens=10**6)
    state = deployment.config.state_layer
    numbers = state.heads * state.head_dim * state.value_dim
    convolved = 2 * (state.conv - 1) * state.convolved_width
    each = numbers * {"fp32": 4, "bf16": 2}[dtype] + convolved
    assert deployment.state_dtype == dtype
    assert deployment.memory().state_bytes == pytest.approx(deployment.config.linear_layers * each)


def test_states_of_half_the_bytes_are_read_sooner():
    """Of many sequences, states are what a step of these layers waits for; prompts in chunks hardly do."""
    wide, narrow = (deployed(states=states) for states in ("fp32", "bf16"))
    each = [float(one.step(decode=1024, context=1).terms_s["kv"]) for one in (wide, narrow)]
    assert each[1] < 0.7 * each[0]
    assert narrow.memory().max_batch(100, 100) > wide.memory().max_batch(100, 100)


@pytest.mark.parametrize(
    ("config", "states", "said"),
    [(NEXT, "fp8", "dtype of states 'fp8'"), (named_model("llama-3.1-8b"), "fp32", "keeps no states"),
     (named_model("lfm2-1.2b"), "fp32", "keeps no states"), (NEXT, 16, "no text")],
)  # fmt: skip
def test_states_of_another_dtype_or_of_no_layer_are_refused(config, states, said):
    with pytest.raises(UsageError, match=said):
        deployed(config, tp=1, states=states)


def test_sglang_has_a_pool_for_states():
    """--mamba-full-memory-ratio 0.9 gives it 0.9 / 1.9 of the room, and a running request takes three of its states."""
    memory, shared = (deployed(engine=engine).memory() for engine in ("sglang", "vllm"))
    room = memory.kv_bytes + memory.state_pool_bytes
    assert memory.state_pool_bytes == pytest.approx(0.9 / 1.9 * room, rel=1e-4)
    assert memory.most_states == memory.state_pool_bytes // (3 * memory.state_bytes)
    assert memory.of_sequence(1000.0) == 1000.0
    assert memory.max_batch(10, 10) == memory.most_states
    assert deployed(engine="sglang", max_num_seqs=4096).sequence_limit == memory.most_states
    assert (shared.state_pool_bytes, shared.most_states) == (0.0, np.inf)
    attending = deployed(dataclasses.replace(NEXT, linear_layers=0), engine="sglang").memory()
    assert (attending.state_pool_bytes, attending.most_states) == (0.0, np.inf)


def test_a_simulated_cache_holds_states_too():
    deployment = deployed()
    memory = deployment.memory()
    replay = pm.simulate(deployment, pm.closed_loop(8, 16, 1000, 100), interval=False)
    each = float(memory.of_sequence(1050.0)) * memory.kv_bytes_token
    assert replay.kv_bytes == pytest.approx(replay.mean_running * each, rel=0.05)
    point = pm.steady(deployment, 1000, 100, concurrency=8)
    assert point.kv_tokens == pytest.approx(8 * float(memory.of_sequence(1050.0)), rel=0.01)


def test_decode_grows_with_the_context_of_the_attending_layers_alone():
    """Three of four layers read a state: a model all of whose layers attend takes longer the longer the context is."""
    every = dataclasses.replace(NEXT, linear_layers=0)
    hybrid, attending = (deployed(config).step(decode=32, context=[1e3, 1e5]) for config in (NEXT, every))
    growth, usual = (np.diff(step.terms_s["kv"])[0] for step in (hybrid, attending))
    assert growth == pytest.approx(usual / 4, rel=0.02)
    assert hybrid.time_s[1] < attending.time_s[1]


def test_a_decode_step_reads_and_writes_each_state():
    sequences = 512
    time = deployed(states="fp32").step(decode=sequences, context=1).terms_s["kv"]
    states = sequences * 36 * 8 * 128 * 128 * 4  # layers, heads of a GPU, [128, 128] in fp32
    assert time > 2 * states / H100.main_memory.bandwidth_bytes_per_s


def test_prompts_take_time_in_proportion_where_they_are_long():
    """Linear attention is linear: four times the prompt is four times its time, and never less than half of it."""
    linear = dataclasses.replace(NEXT, linear_layers=47)
    short, long = (
        float(deployed(linear).step(prefill=[(1, tokens, tokens)]).terms_s["prefill"]) for tokens in (8192, 32768)
    )
    assert 2.0 < long / short < 8.0


@pytest.mark.parametrize(("tp", "said"), [(3, "query heads"), (32, "query heads")])
def test_gpus_share_out_whole_heads(tp, said):
    with pytest.raises(UsageError, match=said):
        deployed(tp=tp).part  # noqa: B018


def test_gpus_share_out_whole_heads_of_linear_attention():
    odd = dataclasses.replace(NEXT, linear_heads=12, linear_key_heads=6)
    with pytest.raises(UsageError, match="tp=8 does not divide the model's 12 heads of layers with a state"):
        deployed(odd, tp=8).part  # noqa: B018
    assert deployed(tp=16).part.state.key_heads == 1


def test_the_report_says_what_a_state_takes():
    notes = " ".join(pm.report(deployed(states="fp32").memory()).notes)
    assert "Layers with a state keep 18.42 MiB of each sequence" in notes
    assert "as much as 1572 tokens" in notes
    rows = {row["part"]: row["bytes"] for row in pm.report(deployed(engine="sglang").memory()).rows}
    assert rows["states"] == pytest.approx(0.9 * rows["keys and values"], rel=1e-4)
    notes = " ".join(pm.report(deployed(engine="sglang").memory()).notes)
    assert "a pool of their own holds those of" in notes


def test_layers_with_both_keep_keys_and_states():
    memory, keys = (deployed(config, tp=1).memory() for config in (FALCON, ATTENDING))
    assert memory.kv_bytes_token_gpu == keys.kv_bytes_token_gpu == 44 * 2 * 2 * 128 * 2
    kept, convolved = 24 * 256 * 128, 2 * 3 * (3072 + 2 * 256)
    assert memory.state_bytes == 44 * (2 * kept + convolved)  # vLLM's are in 16 bits
    assert FALCON.state_bytes == 44 * (4 * kept + convolved)
    assert memory.weights_bytes == pytest.approx(2 * FALCON.parameters, rel=2e-4)
    assert memory.moved_bytes(1000.0) == keys.moved_bytes(1000.0) + 2 * memory.state_bytes
    assert memory.max_batch(1000, 200) < keys.max_batch(1000, 200)


@pytest.mark.parametrize(
    ("work", "mixers"), [({"decode": 32, "context": 1e4}, "kv"), ({"prefill": [(1, 8192, 8192)]}, "prefill")]
)
@pytest.mark.parametrize("tp", [1, 4])
def test_attention_and_states_of_a_layer_both_take_time(work, mixers, tp):
    """A step takes longer than that of either kind of layers alone; attention and states as long as both together."""
    apart = dataclasses.replace(FALCON, linear_layers=43, joint_layers=0)  # one layer attends, the others keep states
    both, keys, states = (deployed(config, tp=tp).step(**work) for config in (FALCON, ATTENDING, apart))
    assert np.all(both.time_s > keys.time_s)
    assert np.all(both.time_s > states.time_s)
    for term in ("weights", "kernels", "gaps", mixers):
        assert np.all(both.terms_s[term] > np.maximum(keys.terms_s[term], states.terms_s[term]))
    alone = (states.terms_s[mixers] - keys.terms_s[mixers] / 44) * 44 / 43
    assert both.terms_s[mixers] == pytest.approx(keys.terms_s[mixers] + alone, rel=1e-6)


def test_what_attention_and_a_state_give_is_summed_before_gpus_exchange_it():
    both, keys = (deployed(config, tp=4).step(decode=32, context=1e4).terms_s for config in (FALCON, ATTENDING))
    assert both["exchange"] == pytest.approx(keys["exchange"])


def test_each_gpu_has_whole_heads_of_both():
    assert deployed(FALCON, tp=4).part.state.heads == 6
    with pytest.raises(UsageError, match="tp=8 does not divide the model's 12 query heads"):
        deployed(FALCON, tp=8).part  # noqa: B018


def test_what_fits_at_once_runs_at_once():
    """Each sequence has the room of its states from its first token on, so that as many run as `Memory.max_batch`."""
    granite = deployed(named_model("granite-4.0-h-small"), tp=1)
    most = granite.memory().max_batch(128, 2048)
    load = pm.closed_loop(2 * most, 4 * most, 128, 2048)
    simulated, mean = pm.simulate(granite, load, interval=False), pm.steady(granite, 128, 2048, concurrency=2 * most)
    assert simulated.mean_running == pytest.approx(most, rel=0.1)
    assert simulated.statistics("tpot_s", ())["mean"] == pytest.approx(float(mean.tpot_s), rel=0.15)
    assert simulated.preemptions < 0.5 * len(load)


def test_a_long_prompt_among_short_ones_fits_where_it_fits_alone():
    granite = deployed(named_model("granite-4.0-h-small"), tp=1)
    assert granite.memory().max_batch(20000, 50) > 10
    load = pm.Requests(np.arange(20.0), np.array([100] * 19 + [20000]), np.full(20, 50))
    assert pm.simulate(granite, load, interval=False).count == 20


def test_a_request_has_to_fit_with_its_states():
    granite = deployed(named_model("granite-4.0-h-small"), tp=1, kv_tokens=12000)
    states = granite.memory().state_tokens
    assert 0 < 12000 - states < 8000
    with pytest.raises(UsageError, match=f"8049 tokens and states as large as {states:.0f} more.*holds 12000"):
        pm.simulate(granite, pm.closed_loop(1, 1, 8000, 50))


@pytest.mark.parametrize(("engine", "state_s"), [("vllm", 0.1468), ("sglang", 0.2936)])
def test_states_move_from_prefill_to_decode(engine, state_s):
    """At 1 GB/s a state of 293.6 MB in fp32 takes 0.29 s more than keys of 512 tokens, in 16 bits half of it."""
    minimax = Deployment(named_model("minimax-text-01"), pm.hardware("h200"), tp=8, engine=engine)
    server = server_of(minimax, Fleet(prefill_replicas=1, kv_link_bytes_per_s=1e9), pm.closed_loop(1, 1, 512, 8))
    keys = 512 * minimax.memory().kv_bytes_token / 1e9
    assert server.link.transfer_s(512) == pytest.approx(keys + state_s, rel=0.01)


@pytest.mark.parametrize("engine", ["vllm", "sglang"])
def test_each_guessed_token_has_a_state_of_its_own(engine):
    guessing, alone = (deployed(engine=engine, speculation=one).memory() for one in (Speculation(3, 0.7), None))
    assert guessing.state_bytes == 4 * alone.state_bytes
    assert guessing.all_state_bytes == alone.all_state_bytes  # one of them moves
    assert guessing.max_batch(1000, 200) < 0.5 * alone.max_batch(1000, 200)
    keys = 10 * alone.kv_bytes_token_gpu
    assert guessing.moved_bytes(10.0) - keys == pytest.approx(2.5 * (alone.moved_bytes(10.0) - keys))


def test_states_of_a_draft_limit_the_sequences_too():
    draft = deployed(named_model("granite-4.0-h-350m"), tp=1, engine="sglang")
    plain = deployed(named_model("qwen3-8b"), tp=1, engine="sglang", speculation=Speculation(3, 0.7, draft))
    assert plain.sequence_limit == plain.memory().most_states < np.inf


def test_a_pool_without_room_for_one_state_says_so():
    small = Deployment(named_model("minimax-text-01"), pm.hardware("h200"), tp=8, engine="sglang", utilization=0.77)
    with pytest.raises(UsageError, match=r"the pool for states has .* a sequence takes 3 times"):
        small.sequence_limit  # noqa: B018


def test_a_pipeline_keeps_what_its_fullest_stage_does():
    """Four of Granite's 40 layers have keys, the last of each ten: of eight stages of five layers, four have one."""
    granite = named_model("granite-4.0-h-small")
    whole, part = (deployed(granite, tp=1, pp=pp).held for pp in (1, 8))
    assert part.token_bytes == whole.token_bytes / 4
    assert part.state_bytes == pytest.approx(whole.state_bytes * 5 / 36)
    assert part.token_bytes_all == whole.token_bytes_all
    assert part.weights_bytes > (whole.weights_bytes - 2 * 2 * 100352 * 4096) / 8


def test_a_step_that_verifies_guesses_writes_the_states_of_each():
    """64 sequences and 3 guesses: as long as the memory takes to write 3 x 64 states, over a model without any."""
    alone, guessing = (deployed(speculation=one).step(decode=64, context=1000) for one in (None, Speculation(3, 0.7)))
    written = 3 * 64 * deployed().memory().state_bytes / H100.main_memory.bandwidth_bytes_per_s
    assert guessing.terms_s["kv"] - alone.terms_s["kv"] == pytest.approx(written)
    simulated = deployed(speculation=Speculation(3, 0.7))  # which counts a token of each sequence as a step
    each_s = float(guessing.time_s) / simulated.gained
    assert simulated.clock().decode_s(64, 1000.0) == pytest.approx(each_s, rel=1e-6)
    every = dataclasses.replace(NEXT, linear_layers=0)
    alone, guessing = (
        deployed(every, speculation=one).step(decode=64, context=1000) for one in (None, Speculation(3, 0.7))
    )
    assert guessing.terms_s["kv"] == alone.terms_s["kv"]
