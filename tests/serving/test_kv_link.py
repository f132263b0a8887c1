"""Keys and values on their way from prefill to decode: the networks of the GPUs that hold them, each engine its own."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import perfmodel as pm
from perfmodel.errors import UsageError
from perfmodel.serving.deployment import Deployment
from perfmodel.serving.kv_link import ASSUMED_BYTES_PER_S, kv_link
from perfmodel.serving.load import Fleet
from perfmodel.serving.points import facts_of
from perfmodel.workloads.catalog import find_model

#: 400 Gb/s, of which large messages reach 85 %
OF_A_GPU = 0.85 * 50e9


def deployed(model: str = "llama-3.1-70b", hardware: str = "h100", **options: Any) -> Deployment:
    return Deployment(find_model(model), pm.hardware(hardware), **{"tp": 4, "weights": "fp8", **options})


def test_each_gpu_that_holds_a_part_sends_it_over_its_own_network() -> None:
    assert kv_link(deployed()).bytes_per_s == pytest.approx(4 * OF_A_GPU)
    assert kv_link(deployed(tp=4, pp=2)).bytes_per_s == pytest.approx(8 * OF_A_GPU)
    assert kv_link(deployed(nic="100 Gb/s")).bytes_per_s == pytest.approx(OF_A_GPU)
    # all eight GPUs keep the whole latent vector of a token
    latent = deployed("deepseek-v3", "h200", tp=8, weights="")
    assert kv_link(latent).bytes_per_s == pytest.approx(OF_A_GPU)


def test_what_no_specification_says_is_assumed_and_what_a_user_says_holds() -> None:
    bridged = deployed("llama-3.1-8b", "rtx-4090", tp=1)
    assert kv_link(bridged).bytes_per_s == ASSUMED_BYTES_PER_S
    assert "assumed" in kv_link(bridged).basis
    assert kv_link(bridged, 1e9).bytes_per_s == 1e9
    facts = facts_of(deployed(), Fleet(prefill_replicas=1))
    assert facts["kv_link_bytes_per_s"] == pytest.approx(4 * OF_A_GPU)
    assert facts_of(deployed(), Fleet())["kv_link_bytes_per_s"] is None
    with pytest.raises(UsageError, match="has no bandwidth"):
        kv_link(bridged, 0.0)


@pytest.mark.waiting
@pytest.mark.parametrize("routing", ["round-robin", "least-loaded"])
def test_twice_the_engines_move_twice_as_much(routing: str) -> None:
    """One link of 2 GB/s takes 0.64 s for 4000 tokens: at 2 requests/s it has a queue that grows, two have none."""
    engine, load = deployed(), pm.open_loop(2.0, 200, 4000, 100, spacing="uniform")
    options: dict[str, Any] = {"kv_link_bytes_per_s": 2e9, "routing": routing, "interval": False}
    alone_s = 4000 * engine.memory().kv_bytes_token / 2e9
    assert alone_s > 0.5
    one, two = (
        pm.simulate(engine, load, replicas=count, prefill_replicas=count, **options) for count in (1, 2)
    )  # fmt: skip
    waited = [replay.latency_s - replay.ttft_s for replay in (one, two)]
    assert waited[0][-10:].mean() > 5 * waited[1][-10:].mean()
    assert np.ptp(waited[1]) < 0.1 * alone_s
