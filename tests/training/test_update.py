"""What ends a step, of a GPU made by hand: how far the passes hide the exchange of gradients."""

from __future__ import annotations

import numpy as np
import pytest

from perfmodel.cluster.cluster import Cluster
from perfmodel.cluster.collectives import exchange_time
from perfmodel.hardware_catalog import hardware
from perfmodel.training.dispatch import Waits
from perfmodel.training.exchange import gradient_exchange
from perfmodel.training.kernels import stream_time
from perfmodel.training.micro_batch import PARTS
from perfmodel.training.plan import TrainingPlan
from perfmodel.training.setup import Setup, setup_of
from perfmodel.training.step import pipeline_gpus
from perfmodel.training.update import StageGpu, exchanged_time, gradients_time
from perfmodel.workloads.catalog import named_model

PARAMETERS = 1e10


def setup(zero: int, gpus: int = 8, framework: str = "megatron-te", **plan: int) -> Setup:
    wanted = TrainingPlan(batch=64, seq=2048, framework=framework, zero=zero, **plan)
    cluster = Cluster.of(hardware("h100-sxm5-80gb"), gpus, alpha_s=0.0)
    return setup_of(named_model("llama-3.1-8b"), cluster, wanted)


def gpu(forward_s: float, backward_s: float, layers: int = 1000) -> StageGpu:
    share = np.full(len(PARTS), 1.0 / len(PARTS))
    return StageGpu(
        forward=forward_s * share, backward=backward_s * share, weights_s=0.0, sharding_s=0.25, parameters=PARAMETERS,
        expert_parameters=0.0, trained=PARAMETERS, trained_experts=0.0, layers=layers, waits=Waits(1.0, 0.0, 0.0, 0.0),
    )  # fmt: skip


def alone(setup: Setup) -> float:
    return gradient_exchange(setup.groups, setup.groups.data, PARAMETERS, setup.gradient_bytes)


def test_a_micro_batch_is_both_passes_and_what_sharding_adds() -> None:
    assert gpu(1.0, 2.0).time_s == pytest.approx(3.25)


@pytest.mark.parametrize("zero", [0, 1])
def test_the_backward_pass_hides_gradients_and_the_next_forward_pass_new_weights(zero: int) -> None:
    """Weights come back with the sum of ZeRO 0 only, so that nothing waits beside the forward pass."""
    made = setup(zero)
    assert made.framework.overlaps_data_parallel
    exchange, share = alone(made), made.constants.sm_share
    forward, backward = exchange / 8, exchange / 4
    hidden = backward + (forward if zero else 0.0)
    assert gradients_time(made, gpu(forward, backward)) == pytest.approx(exchange - hidden + share * hidden)


def test_the_last_layer_has_nothing_to_hide_behind() -> None:
    made = setup(0)
    exchange, share = alone(made), made.constants.sm_share
    found = gradients_time(made, gpu(10 * exchange, 20 * exchange, layers=4))
    assert found == pytest.approx(exchange / 4 + share * exchange)


def test_of_two_virtual_stages_one_hides_the_exchange() -> None:
    made = setup(0, pp=2, vp=2, tp=2)
    exchange, share = alone(made), made.constants.sm_share
    hidden = exchange / 8
    assert gradients_time(made, gpu(exchange, exchange / 4)) == pytest.approx(exchange - hidden + share * hidden)


def test_domains_of_hsdp_sum_up_the_shards_of_their_gpus() -> None:
    """4 nodes of 8: each GPU's eighth of the gradients goes around a ring of 4, over the network of that GPU."""
    made = setup(3, gpus=32, framework="fsdp2-compile", hsdp=True)
    ring = 2 * 3 / 4 * PARAMETERS / 8 * made.gradient_bytes / made.cluster.network_bytes_per_s
    assert gradients_time(made, gpu(0.0, 0.0)) == pytest.approx(ring, rel=1e-3)
    assert gradients_time(made, gpu(0.0, 100 * ring)) < 0.5 * ring
    assert gradients_time(setup(3, gpus=32, framework="fsdp2-compile"), gpu(0.0, 0.0)) == 0.0


def test_deepspeed_all_reduces_every_micro_batch_on_the_stream_of_the_compute() -> None:
    """ZeRO 2, 8 micro batches: each all-reduces 2 B a gradient, which 12 B pack; new weights are gathered once.

    No pass hides any of it. A reduction beside the backward pass leaves only what that pass does not hide.
    """
    made = setup(2, framework="deepspeed")
    held, group = 2.0 * PARAMETERS, made.groups.data
    assert made.micro_batches == 8
    packing = made.constants.memory_bound["counted"] * stream_time(made.hardware, 12.0 * PARAMETERS)
    whole = exchange_time(group, "all_reduce", held)
    assert whole > 1.4 * exchange_time(group, "reduce_scatter", held)
    each = whole + packing
    gather = exchange_time(group, "all_gather", held)
    for backward_s in (0.0, 100.0 * whole):  # hides nothing
        assert gradients_time(made, gpu(backward_s, backward_s)) == pytest.approx(8 * each + gather)
    beside = setup(2, framework="deepspeed-overlap")
    assert gradients_time(beside, gpu(0.0, 0.0)) == pytest.approx(8 * each + gather)
    assert gradients_time(beside, gpu(0.0, 100.0 * whole)) < 0.5 * (8 * each + gather)


def test_megatron_of_2021_packs_gradients_on_one_gpu_too() -> None:
    """Local DDP flattens, divides and copies back, 12 B a gradient in 16 bits, also where no other rank has any."""
    made = setup(0, gpus=1, framework="megatron-2021")
    slow = made.constants.memory_bound["counted"]
    expected = slow * stream_time(made.hardware, 12.0 * PARAMETERS)
    assert gradients_time(made, gpu(1.0, 2.0)) == pytest.approx(expected)
    assert gradients_time(setup(0, gpus=1), gpu(1.0, 2.0)) == 0.0


@pytest.mark.parametrize("zero", [0, 1, 2, 3])
@pytest.mark.parametrize("factor", [0.5, 1.0, 1.5, 4.0, 30.0])
def test_an_exchange_that_takes_longer_comes_out_of_the_passes_that_hide_it(zero: int, factor: float) -> None:
    """It adds at least its exposed part times the factor, and at the most all that it takes longer."""
    made = setup(zero, framework="fsdp2-eager")
    slowest = pipeline_gpus(made)[0]
    usual, other = exchanged_time(made, slowest), exchanged_time(made, slowest, factor)
    whole = exchanged_time(made, slowest, 1e6) / 1e6
    assert min(factor, 1.0) * usual <= other * (1 + 1e-9)
    assert (other - usual) * np.sign(factor - 1.0) >= 0.0
    assert abs(other - usual) <= 1.001 * abs(factor - 1.0) * whole
    if factor > 8.0:
        assert other > 1.01 * factor * usual, "what was hidden is not any more"
