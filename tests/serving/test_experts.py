"""The layer of experts in closed form: what is read, computed and padded."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import perfmodel as pm
from perfmodel.serving.deployment import Deployment
from perfmodel.serving.experts import WIDENED_SHARE, experts_time
from perfmodel.serving.parallel import Parallel
from perfmodel.serving.shard import shard
from perfmodel.workloads.catalog import find_model

RATE, PEAK = 4e12, 700e12


def layer(tokens: float, *, widened: bool, weight_bytes: float = 0.53) -> float:
    part = shard(find_model("gpt-oss-120b"), Parallel(1, 1, 1, 1))
    return float(
        experts_time(part, Parallel(1, 1, 1, 1), np.array([tokens]), weight_bytes, RATE, PEAK, 0.0, widened=widened)[0]
    )


def test_one_token_reads_the_experts_it_visits() -> None:
    part = shard(find_model("gpt-oss-120b"), Parallel(1, 1, 1, 1))
    read = part.top_k * 3 * part.hidden * part.expert_ffn * 2.0 / RATE
    assert read < layer(1.0, widened=False, weight_bytes=2.0) < 1.6 * read


def test_widened_weights_slow_prompts_and_not_the_steps_of_few() -> None:
    prompt, step = (layer(n, widened=True) / layer(n, widened=False) for n in (16384.0, 4.0))
    assert 1.2 < prompt < 1.0 / WIDENED_SHARE
    assert step <= 1.0


def test_more_tokens_never_take_less() -> None:
    times = [layer(float(n), widened=widened) for widened in (False, True) for n in (1, 8, 64, 512, 4096)]
    assert times[:5] == sorted(times[:5])
    assert times[5:] == sorted(times[5:])


@pytest.mark.parametrize("widened", [True, False])
def test_a_few_more_tokens_make_no_cliff(widened: bool) -> None:
    tokens = np.unique(np.floor(np.exp2(np.arange(6.0, 17.0, 0.02))))
    times = [layer(float(n), widened=widened) for n in tokens]
    assert times == sorted(times)
    assert all(more < 1.5 * fewer for fewer, more in itertools.pairwise(times))


@pytest.mark.parametrize("tokens", [600.0, 2100.0, 4200.0])
def test_unequal_loads_leave_no_step_on_which_more_tokens_are_free(tokens: float) -> None:
    assert layer(1.9 * tokens, widened=True) > 1.2 * layer(tokens, widened=True)


def test_experts_alone_in_nvfp4_leave_the_rest_in_sixteen_bits():
    config, machine = find_model("deepseek-r1"), pm.hardware("b200")
    routed = config.moe_layers * config.experts * config.expert_parameters
    whole = Deployment(config, machine, engine="trtllm", tp=8, weights="nvfp4_experts")
    copies = 7 * 2 * (61 * 7168 * (1536 + 512 + 64) + 58 * 256 * 7168)  # latent keys and routers, on each of eight GPUs
    held = 8 * whole.memory().weights_bytes - copies
    assert held == pytest.approx(routed * 0.5625 + 2 * (config.parameters - routed), rel=1e-3)
    # what is sent to experts is as narrow
    deployed = [
        Deployment(config, machine, engine="trtllm", ep=8, dp=8, weights=name) for name in ("nvfp4", "nvfp4_experts")
    ]
    exchange = [float(one.step(decode=512, context=100).terms_s["exchange"]) for one in deployed]
    assert exchange[0] == pytest.approx(exchange[1])
