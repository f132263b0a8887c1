"""Serving of models of states alone, and of Mamba of the first kind beside attention."""

from __future__ import annotations

import pytest

import perfmodel as pm
from perfmodel.core.vocabulary import ErrorSource
from perfmodel.errors import UsageError
from perfmodel.serving.deployment import Deployment
from perfmodel.serving.requests import closed_loop
from perfmodel.serving.speculation import Speculation
from perfmodel.workloads.catalog import named_model

H100 = pm.hardware("h100-sxm5-80gb")
BANDWIDTH = H100.main_memory.bandwidth_bytes_per_s
SCAN, ALONE, JAMBA = (named_model(name) for name in ("falcon-mamba-7b", "mamba-codestral-7b", "jamba-1.5-mini"))


def deployed(config, **options):
    return Deployment(config, H100, **{"engine": "vllm", **options})


@pytest.mark.parametrize(("config", "tp"), [(SCAN, 1), (ALONE, 1), (SCAN, 2), (ALONE, 8), (JAMBA, 2)])
def test_parts_hold_the_weights_of_the_whole(config, tp):
    """All but decays, convolutions and norms, which are less than a thousandth; a router is whole on each GPU."""
    routers = (tp - 1) * config.moe_layers * config.experts * config.hidden
    held = tp * deployed(config, tp=tp).memory().weights_bytes
    assert held == pytest.approx(2 * (config.parameters + routers), rel=2e-3)


@pytest.mark.parametrize("config", [SCAN, ALONE], ids=["mamba", "mamba2"])
def test_a_sequence_takes_as_much_however_long_it_is(config):
    memory = deployed(config, tp=2, states="fp32").memory()
    assert memory.kv_bytes_token == memory.kv_bytes == 0
    assert memory.state_bytes == config.state_bytes / 2 == memory.all_state_bytes / 2
    most = memory.state_pool_bytes // memory.state_bytes
    assert memory.max_batch(100, 100) == memory.max_batch(100_000, 1000) == most
    used = memory.weights_bytes + memory.activations_bytes + memory.workspace_bytes + memory.state_pool_bytes
    assert 0.85 * memory.capacity_bytes < used < memory.capacity_bytes


@pytest.mark.parametrize(("config", "tp"), [(SCAN, 1), (SCAN, 2), (ALONE, 1), (JAMBA, 2)])
def test_a_step_reads_and_writes_each_state(config, tp):
    deployment = deployed(config, tp=tp, states="fp32")
    least = 256 * (config.state_bytes - config.linear_layers * 6 * config.state_layer.convolved_width) * 2 / tp
    time = float(deployment.step(decode=256, context=1).terms_s["kv"])
    assert least / BANDWIDTH < time < 2 * least / BANDWIDTH + 64 * 10e-6


def test_a_long_context_costs_states_alone_nothing():
    for config in (SCAN, ALONE):
        near, far = (float(deployed(config).step(decode=8, context=n).time_s) for n in (100, 100_000))
        assert near == far
    near, far = (float(deployed(JAMBA, tp=2).step(decode=8, context=n).time_s) for n in (100, 100_000))
    assert far > near + 8 * 100_000 * JAMBA.kv_bytes_per_token() / 2 / BANDWIDTH


def test_gpus_sum_what_a_scan_needs_of_all_channels():
    """One exchange more a layer, of queries, keys and steps: without it there is one, of the residual stream."""
    step = {"decode": 64, "context": 1}
    both = float(deployed(SCAN, tp=2).step(**step).terms_s["exchange"])
    alone = float(deployed(ALONE, tp=2).step(**step).terms_s["exchange"])
    assert 1.3 * alone < both < 2 * alone


def test_nobody_measured_a_scan_and_its_interval_says_so():
    op = SCAN.state_layer.operator(batch=64, seq=1, carried=True, dtype="bf16")
    found = pm.predict(op, H100)
    assert found.predicted_time_high_s > 1.9 * found.predicted_time_s
    shares = found.uncertainty.parts[0][1]
    assert max(shares, key=lambda source: shares[source][0]) == ErrorSource.KERNEL


@pytest.mark.parametrize(
    ("config", "options", "said"),
    [
        (ALONE, {"kv_tokens": 10_000}, "keeps no keys and values, and kv_tokens=10000 is given"),
        (SCAN, {"kv": "fp8"}, "keeps no keys and values, and kv='fp8' is given"),
        (ALONE, {"tp": 3}, "heads of layers with a state"),
        (SCAN, {"tp": 3}, "heads of layers with a state"),
    ],
)
def test_what_states_alone_have_not_is_refused(config, options, said):
    with pytest.raises(UsageError) as error:
        deployed(config, **options)
    assert said in str(error.value)


def test_more_users_than_states_wait():
    deployment = deployed(ALONE, tp=1, states="fp32", max_num_seqs=5000)
    most = int(deployment.memory().most_states)
    replay = pm.simulate(deployment, closed_loop(2 * most, 3 * most, 64, 16), interval=False)
    assert 0.5 * most < replay.mean_batch <= most
    assert replay.preemptions == 0


def test_the_memory_of_states_alone_is_told():
    notes = " ".join(pm.report(deployed(SCAN).memory()).notes)
    assert "No layer keeps keys and values" in notes
    assert "a pool of their own holds those of" in notes


def test_a_draft_with_keys_beside_states_alone():
    draft = deployed(named_model("qwen3-0.6b"), tp=1)
    memory = deployed(ALONE, tp=1, speculation=Speculation(3, 0.7, draft)).memory()
    assert memory.kv_bytes_token > 0
    assert memory.kv_tokens < float("inf")
