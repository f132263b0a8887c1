"""Exchanges beside products: of what a product hides only contention is left, of what stands alone everything."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfmodel.cluster.cluster import Cluster
from perfmodel.cluster.collectives import exchange_time, send_time
from perfmodel.hardware_catalog import hardware
from perfmodel.operators.routing import Dispatcher
from perfmodel.training.constants import constants
from perfmodel.training.exchange import (
    SCATTER_PIECES,
    beside_pieces,
    beside_ring,
    context_exchange,
    expert_exchange,
    expert_tensor_exchange,
    exposed,
)
from perfmodel.training.framework import find_framework
from perfmodel.training.held import held_parameters
from perfmodel.training.layer import LayerWork, layer_work
from perfmodel.training.plan import TrainingPlan
from perfmodel.training.setup import Setup, setup_of
from perfmodel.training.step import train
from perfmodel.workloads.catalog import named_model
from perfmodel.workloads.layer_kinds import Kind

TIMES = st.floats(1e-6, 1.0)


def test_a_ring_is_hidden_by_the_pieces_that_are_multiplied_meanwhile() -> None:
    # t = 4: three pieces come in beside three quarters of the product
    assert beside_ring(0.75, 1.0, 4, 0.0) == 0.0
    assert beside_ring(1.0, 1.0, 4, 0.0) == pytest.approx(0.25)
    assert beside_ring(0.5, 1.0, 4, 0.2) == pytest.approx(0.1)


def test_the_last_piece_of_a_sum_has_nothing_to_hide_behind() -> None:
    assert beside_pieces(0.4, 1.0, 0.0) == pytest.approx(0.4 / SCATTER_PIECES)
    assert beside_pieces(2.0, 1.0, 0.0) == pytest.approx(2.0 - (1.0 - 1.0 / SCATTER_PIECES))


@given(exchange=TIMES, product=TIMES, ranks=st.integers(2, 16))
def test_overlap_never_costs_more_than_the_exchange_alone(exchange: float, product: float, ranks: int) -> None:
    for cost in (
        beside_ring(exchange, product, ranks, 0.15),
        beside_pieces(exchange, product, 0.15),
        exposed(exchange, product, 0.15),
    ):
        assert 0.0 <= cost <= exchange * 1.15 + 1e-12


def experts(framework: str = "megatron-te", **sizes: object) -> Setup:
    cluster = Cluster.of(hardware("h100-sxm5-80gb"), 16, nic="400Gb/s")
    plan = TrainingPlan(batch=16, seq=4096, tp=4, framework=framework, **sizes)  # type: ignore[arg-type]
    return Setup(named_model("mixtral-8x7b"), cluster, plan, find_framework(framework), constants())


#: DeepSeek-V3: 8 of 256 experts, from 4 of 8 groups
DEEPSEEK = named_model("deepseek-v3").router


@pytest.mark.parametrize("efficiency", [0.5, 0.85, 1.0])
@pytest.mark.parametrize("routing", [0.3, 0.859, 1.2])
@pytest.mark.parametrize("dispatcher", [Dispatcher.ALLTOALL, Dispatcher.DEEPEP])
def test_experts_of_a_token_are_distinct_and_no_faster_than_the_link(
    efficiency: float, routing: float, dispatcher: Dispatcher
) -> None:
    """Mixtral with an expert on each of 8 nodes: both copies of a token go to nodes of their own, 2 x 7/8 cross."""
    cluster = Cluster.of(hardware("h100-sxm5-80gb"), 8, nic="10Gb/s", gpus_per_node=1, nic_efficiency=efficiency)
    plan = TrainingPlan(batch=8, seq=4096, ep=8, framework="megatron-te")
    setup = Setup(named_model("mixtral-8x7b"), cluster, plan, find_framework("megatron-te"), constants())
    crossing = 4096 * 4096 * 2.0 * 2 * 7 / 8
    time = expert_exchange(setup.groups, work_of(setup), setup.config.router, dispatcher, routing).time_s
    alone = 2.0 * (crossing / (1.25e9 * efficiency) + cluster.alpha_s)
    assert time == pytest.approx(max(2.0 * crossing / 1.25e9, routing * alone))


def deepseek(gpus: int, **sizes: object) -> Setup:
    cluster = Cluster.of(hardware("h100-sxm5-80gb"), gpus, nic="400Gb/s")
    plan = TrainingPlan(batch=gpus, seq=4096, ep=gpus, framework="megatron-te", **sizes)  # type: ignore[arg-type]
    return Setup(named_model("deepseek-v3"), cluster, plan, find_framework("megatron-te"), constants())


@pytest.mark.parametrize(
    ("dispatcher", "copies"), [(Dispatcher.ALLTOALL, 8.0), (Dispatcher.DEEPEP, 3.629), (Dispatcher.ALLGATHER, None)]
)
def test_a_node_exchanges_a_copy_for_each_rank_or_for_each_expert(dispatcher: Dispatcher, copies: float | None) -> None:
    """8 GPUs with a group of 32 experts each: 4 (1 - C(96, 8) / C(128, 8)) = 3.63 of them have experts of a token."""
    setup = deepseek(8)
    time = expert_exchange(setup.groups, work_of(setup), DEEPSEEK, dispatcher).time_s
    tokens = 4096 * 7168 * 2.0
    if copies is None:
        kinds = ("all_gather", "reduce_scatter")
        assert time == pytest.approx(sum(exchange_time(setup.groups.expert, kind, 8 * tokens) for kind in kinds))
    else:
        assert time == pytest.approx(2.0 * exchange_time(setup.groups.expert, "alltoall", copies * tokens), rel=1e-3)


def test_a_token_crosses_to_each_node_once_or_for_each_expert() -> None:
    """DeepSeek-V3 on 8 nodes, each of which has one of the 8 groups: 3.63 or 8 copies, 7/8 of which cross."""
    setup = deepseek(64)
    tokens, network = 4096 * 7168 * 2.0, setup.cluster.network_bytes_per_s
    for dispatcher, copies in ((Dispatcher.DEEPEP, 3.629), (Dispatcher.ALLTOALL, 8.0)):
        time = expert_exchange(setup.groups, work_of(setup), DEEPSEEK, dispatcher).time_s
        assert time == pytest.approx(2.0 * (copies * tokens * 7 / 8 / network + setup.cluster.alpha_s), rel=1e-3)


@pytest.mark.parametrize(("dispatcher", "said"), [("deepep", "takes 4.2 times as many"), ("", "takes 0.24 times as")])
def test_a_step_says_whether_copies_of_a_token_cross_as_one(dispatcher: str, said: str) -> None:
    """DeepSeek-V3 on two nodes: a token has experts on 1.93 of them, and 8 copies."""
    cluster = Cluster.of(hardware("h100-sxm5-80gb"), 16, nic="400Gb/s")
    plan = TrainingPlan(batch=16, seq=2048, ep=16, framework="megatron-te", dispatcher=dispatcher)
    found = train(named_model("deepseek-v3"), cluster, plan)
    assert said in " ".join(found.notes)
    inside = train(named_model("deepseek-v3"), cluster, plan.changed(ep=8))
    assert "copies" not in " ".join(inside.notes)
    assert inside.terms_s["expert"] < found.terms_s["expert"]


def test_a_plan_or_its_framework_says_how_tokens_are_dispatched() -> None:
    assert experts().dispatcher == Dispatcher.ALLTOALL
    assert experts("megatron-bridge").dispatcher == Dispatcher.DEEPEP
    assert experts("megatron-bridge", ep=2, dispatcher="alltoall").dispatcher == Dispatcher.ALLTOALL


def work_of(setup: Setup) -> LayerWork:
    return layer_work(setup.hardware, setup.config, setup.shard, Kind(moe=True))


def test_experts_are_shared_out_as_the_framework_does_it() -> None:
    """Megatron-LM: expert_tensor_parallel_size is the tensor parallel size unless it is given; Bridge's recipes: 1."""
    assert (experts().shard.etp, experts().groups.etp) == (4, 4)
    assert experts(etp=1).shard.etp == 1
    assert experts("megatron-bridge").shard.etp == 1
    parts, whole = (held_parameters(one.config, one.cluster, one.plan)[0] for one in (experts(), experts(etp=1)))
    assert parts.experts == whole.experts / 4
    assert parts.dense == whole.dense


@pytest.mark.parametrize(
    "plan",
    [{}, {"tp": 4}, {"tp": 2, "cp": 2, "ep": 4}, {"pp": 2, "cp": 4, "ep": 8}, {"tp": 4, "pp": 2, "ep": 2, "etp": 1}],
)
def test_each_gpu_has_one_place_among_dense_layers_and_one_among_experts(plan: dict[str, int]) -> None:
    config, cluster = named_model("mixtral-8x7b"), Cluster.of(hardware("h100-sxm5-80gb"), 64)
    made = setup_of(config, cluster, TrainingPlan(batch=64, seq=4096, framework="megatron-te", **plan))
    groups, pp = made.groups, made.plan.pp
    # context parallel ranks hold the same weights, and so are among those of the data
    assert groups.tensor.ranks * groups.data.ranks * pp == 64
    assert groups.expert.ranks * groups.expert_tensor.ranks * groups.expert_data.ranks * pp == 64
    assert groups.data.stride == groups.tensor.ranks
    assert groups.expert_data.stride == groups.expert.ranks * groups.expert_tensor.ranks


@pytest.mark.parametrize(("sp", "repeated"), [(True, 0.0), (False, 0.75)])
def test_the_ranks_of_an_expert_share_its_work(sp: bool, repeated: float) -> None:
    """As many products whether ranks have whole experts or parts; without sequence parallelism whole ones repeat it."""
    whole, parts = (work_of(one).flop for one in (experts(sp=sp, etp=1), experts(sp=sp)))
    routed = 2.0 * 3 * 4096 * 2 * 4096 * 14336  # up, gate and down of T tokens by two experts each
    assert whole - parts == pytest.approx(repeated * routed, abs=1e-9 * routed)


def test_the_ranks_of_an_expert_gather_its_tokens_and_add_up_what_it_gives() -> None:
    """T tokens of h elements where all experts are at hand, k copies of them where tokens were sent to theirs."""
    together = 4096 * 4096 * 2.0
    # with deepep a token of two experts visits 4 (1 - C(6, 2) / C(8, 2)) = 13/7 of 4 ranks
    for setup, dispatcher, copies in (
        (experts(), Dispatcher.ALLTOALL, 1.0),
        (experts(ep=4), Dispatcher.ALLTOALL, 2.0),
        (experts(ep=4), Dispatcher.DEEPEP, 13 / 7),
        (experts(ep=4), Dispatcher.ALLGATHER, 4.0),
    ):
        group = setup.groups.expert_tensor
        counted = sum(exchange_time(group, kind, copies * together) for kind in ("all_gather", "reduce_scatter"))
        assert gathering(setup, dispatcher) == pytest.approx(counted)
    assert gathering(experts(etp=1)) == 0.0
    replicated = experts(sp=False)
    assert gathering(replicated) == pytest.approx(
        exchange_time(replicated.groups.expert_tensor, "all_reduce", together)
    )


def gathering(setup: Setup, dispatcher: Dispatcher = Dispatcher.ALLTOALL) -> float:
    return expert_tensor_exchange(setup.groups, setup.shard, work_of(setup), setup.config.router, dispatcher)


def test_a_ring_over_the_network_takes_few_sms():
    """A send has two channels; beside attention that hides it, the ring costs their share of the SMs, not more."""
    llama, plan = named_model("llama-3.1-8b"), TrainingPlan(batch=16, seq=131072, tp=8, cp=4)
    cluster = Cluster.of(hardware("h100-sxm5-80gb"), 32, nic="400Gb/s")
    setup = Setup(llama, cluster, plan, find_framework("megatron-te"), constants())
    ring = 3 * send_time(setup.groups.context, 131072 / 4 * 2 * 128 * 2.0)
    forward, backward = context_exchange(setup.groups, setup.shard, llama, 10 * ring, 10 * ring, 0.15)
    assert forward == pytest.approx(ring * 2 / 132)
    assert backward == pytest.approx(2 * ring * 2 / 132)
