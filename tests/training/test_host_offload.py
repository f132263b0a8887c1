"""What lives on the host: bytes and times by hand, and which way steps and memory go."""

from __future__ import annotations

import dataclasses
import itertools
import math

import numpy as np
import pytest

import perfmodel as pm
from perfmodel.cluster.cluster import Cluster
from perfmodel.core.report import report
from perfmodel.errors import UsageError
from perfmodel.hardware_catalog import hardware
from perfmodel.prediction.uncertainty import Z80
from perfmodel.render.table import render
from perfmodel.training.expert_overlap import pairs
from perfmodel.training.host_offload import Copied, LayerCopies, StepEnd, layer_copies, offload_stretch
from perfmodel.training.host_rates import GRACE, REACHED, host_rates
from perfmodel.training.micro_batch import PARTS, Passes
from perfmodel.training.plan import TrainingPlan
from perfmodel.training.result import TrainingStep
from perfmodel.training.search import full_step, search
from perfmodel.training.setup import setup_of
from perfmodel.training.space import default_space
from perfmodel.training.state_bytes import host_pass_bytes, host_update_bytes
from perfmodel.workloads.catalog import named_model

LLAMA = named_model("llama-3.1-8b")
H100 = hardware("h100-sxm5-80gb")
WAYS = ("optimizer", "activations", "optimizer,activations")
EVERY = (*WAYS, "optimizer,parameters", "parameters", "optimizer,parameters,activations")


def plan(**values: object) -> TrainingPlan:
    usual = {"batch": 32, "seq": 4096, "micro_batch": 1, "framework": "deepspeed", "zero": 3}
    return TrainingPlan(**(usual | values))  # type: ignore[arg-type]


def step(cluster: Cluster | None = None, **values: object) -> TrainingStep:
    return full_step(LLAMA, cluster or Cluster.of(H100, 8), plan(**values))


def faster_link(factor: float) -> Cluster:
    """A node whose links to the host are some times as fast, with a host that does not limit them."""
    links = tuple(
        dataclasses.replace(link, bandwidth_bytes_per_s=factor * link.bandwidth_bytes_per_s) if link.name == "pcie"
        else link for link in H100.links
    )  # fmt: skip
    return Cluster.of(dataclasses.replace(H100, links=links), 8, host_bandwidth="1.5TB/s")


@pytest.mark.parametrize("parts", EVERY)
@pytest.mark.parametrize("framework", ["deepspeed", "fsdp2-compile", "megatron"])
@pytest.mark.parametrize("recompute", ["none", "full"])
def test_a_step_is_never_faster_with_something_on_the_host(parts: str, framework: str, recompute: str) -> None:
    cluster = Cluster.of(H100, 8)
    changes = {"framework": framework, "recompute": recompute, "zero": 3}
    before, after = step(cluster, **changes), step(cluster, **changes, offload=parts)
    assert after.time_s >= before.time_s * (1.0 - 1e-12)
    assert after.time_s == pytest.approx(sum(after.terms_s.values()))
    others = {name: time for name, time in after.terms_s.items() if name not in ("offload", "cpu_optimizer")}
    assert others.items() <= before.terms_s.items()
    assert (after.flop, after.hardware_flop) == (before.flop, before.hardware_flop)


@pytest.mark.parametrize("parts", EVERY)
def test_a_faster_link_never_makes_a_step_slower(parts: str) -> None:
    times = [step(faster_link(factor), offload=parts).time_s for factor in (0.25, 0.5, 1.0, 2.0, 8.0, 64.0)]
    assert all(later <= earlier for earlier, later in itertools.pairwise(times))
    assert times[-1] < times[0]


def test_the_update_on_the_cpu_is_bytes_over_the_share_of_the_host() -> None:
    """8.03e9 parameters on 8 GPUs, 28 B each, and 14 of scaling and casting, at an eighth of 160 GB/s."""
    cluster = Cluster.of(H100, 8, host_bandwidth="160GB/s")
    found = step(cluster, offload="optimizer")
    assert found.terms_s["cpu_optimizer"] == pytest.approx(LLAMA.parameters / 8 * 42.0 / 20e9, rel=1e-3)
    assert "optimizer" not in found.terms_s
    alone = step(Cluster.of(H100, 1, host_bandwidth="160GB/s"), offload="optimizer")
    assert alone.terms_s["cpu_optimizer"] == pytest.approx(LLAMA.parameters * 42.0 / 160e9, rel=1e-3)


def test_megatron_copies_fp32_gradients_and_16_bit_weights_once_a_step() -> None:
    """6 B a parameter of the GPU's share, at what copies reach: an eighth of 160 GB/s."""
    cluster = Cluster.of(H100, 8, host_bandwidth="160GB/s")
    for batch in (8, 32):
        found = step(cluster, framework="megatron", zero=1, offload="optimizer", batch=batch)
        assert found.terms_s["offload"] == pytest.approx(LLAMA.parameters / 8 * 6.0 / 20e9, rel=1e-3)


@pytest.mark.parametrize(
    ("framework", "optimizer", "expected"),
    [
        ("megatron", "adam", (4 + 24 + 2, 0)),
        ("deepspeed", "adam", (4 + 24, 8 + 6)),  # fp32 gradients are scaled, and weights cast, in passes of their own
        ("fsdp2-compile", "adam", (4 + 16 + 8, 0)),
        ("torchtune", "adam-bf16", (2 + 8 + 4, 0)),
        ("deepspeed", "sgd", (4 + 16, 8 + 6)),
        ("deepspeed", "adam-bf16", (2 + 8 + 4, 4)),
    ],
)
def test_bytes_of_an_update(framework: str, optimizer: str, expected: tuple[float, float]) -> None:
    made = setup_of(LLAMA, Cluster.of(H100, 8), plan(framework=framework, optimizer=optimizer))
    assert (host_update_bytes(made), host_pass_bytes(made)) == expected


def test_half_of_the_optimizer_costs_half_and_leaves_half() -> None:
    cluster = Cluster.of(H100, 8, host_bandwidth="160GB/s")
    changes = {"framework": "megatron", "zero": 1}
    none, half, whole = (
        step(cluster, **changes, **parts)
        for parts in ({}, {"offload": "optimizer", "offload_fraction": 0.5}, {"offload": "optimizer"})
    )
    for term in ("offload", "cpu_optimizer"):
        assert half.terms_s[term] == pytest.approx(0.5 * whole.terms_s[term])
    assert half.terms_s["optimizer"] == pytest.approx(0.5 * none.terms_s["optimizer"], rel=0.05)
    parts = [found.memory.peak.parts["optimizer"] for found in (none, half, whole)]
    assert parts[1:] == pytest.approx([0.5 * parts[0], 0.0])


@pytest.mark.parametrize(
    ("schedule", "zero"), [("1f1b", 0), ("1f1b", 1), ("1f1b", 2), ("dualpipe", 0), ("dualpipe", 1)]
)
def test_the_cpu_updates_what_its_memory_holds(schedule: str, zero: int) -> None:
    """12 B of optimizer and 4 of gradients a parameter wait on the host, also of both stages of a GPU of DualPipe."""
    made = plan(framework="megatron", zero=zero, pp=4, batch=64, schedule=schedule, offload="optimizer")
    found = full_step(LLAMA, Cluster.of(H100, 8, host_bandwidth="160GB/s"), made)
    assert found.memory is not None
    held = max(stage.host["optimizer"] for stage in found.memory.stages)
    moved = host_update_bytes(setup_of(LLAMA, Cluster.of(H100, 8), made))
    # the last norm is not counted
    assert found.terms_s["cpu_optimizer"] == pytest.approx(held / 12.0 * moved / 20e9, rel=1e-5)
    for stage in found.memory.stages:
        assert stage.host["gradients"] == pytest.approx(stage.host["optimizer"] / 12.0 * 4.0)


@pytest.mark.parametrize("parts", WAYS)
@pytest.mark.parametrize(("framework", "zero"), [("deepspeed", 2), ("deepspeed", 3), ("megatron", 1), ("megatron", 2)])
def test_memory_falls_by_exactly_what_is_on_the_host(parts: str, framework: str, zero: int) -> None:
    """Gradients of ZeRO 0 and 1 stay until the update: their buffer on the host frees nothing.

    DeepSpeed's 2 B of a gradient have 4 on the host for the CPU, and 2 where they add up.
    """
    before, after = (step(framework=framework, zero=zero, offload=way).memory for way in ("none", parts))
    assert before is not None
    assert after is not None
    stages = before.stages[0], after.stages[0]
    moved = dict(stages[1].host)
    if zero < 2:
        moved.pop("gradients", None)
    elif framework == "deepspeed" and "gradients" in moved:
        moved["gradients"] *= 2.0 / 6.0
    for moment in ("backward", "update"):
        there = sum(size for part, size in moved.items() if moment == "backward" or part != "activations")
        fallen = stages[0].by_moment[moment] - stages[1].by_moment[moment]
        # what the GPU's update needs beside the state is not needed any more
        assert fallen >= there * (1.0 - 1e-9)
        if moment == "backward":
            assert fallen == pytest.approx(there)


def test_weights_of_a_single_gpu_are_gathered_layer_by_layer() -> None:
    """ZeRO 3 on one GPU keeps two layers, embedding and head of the 16 GB of weights, and the rest on the host."""
    one = Cluster.of(H100, 1)
    found = step(one, offload="optimizer,parameters", batch=1, recompute="full").memory
    assert found is not None
    layer = LLAMA.dense_layer_parameters
    outer = 2 * LLAMA.vocab * LLAMA.hidden + LLAMA.outer_norm_parameters
    assert found.peak.parts["weights"] == 0.0
    assert found.peak.parts["gathered"] == pytest.approx(2.0 * (2 * layer + outer), rel=1e-3)
    assert found.host_parts["weights"] == pytest.approx(2.0 * LLAMA.parameters, rel=1e-3)
    assert found.host_parts["optimizer"] == pytest.approx(12.0 * LLAMA.parameters, rel=1e-3)


def test_activations_leave_two_layers() -> None:
    found = [step(offload=way, batch=8, recompute="full").memory.peak.parts["activations"] for way in ("none", WAYS[1])]
    assert found[1] == pytest.approx(found[0] * 2 / 32)


def test_copies_of_activations_hide_behind_the_layers_or_wait() -> None:
    """Recomputed layers of 4,096 tokens take longer than 34 MB to the host; kept ones have 16 times as many bytes."""
    hidden = step(framework="fsdp2-compile", offload="activations", recompute="full")
    assert "offload" not in hidden.terms_s
    waits = step(framework="huggingface", zero=0, offload="activations", recompute="full")
    rates, moved = host_rates(Cluster.of(H100, 8)), 30 * 4 * 2.0 * 4096 * 4096
    assert waits.terms_s["offload"] == pytest.approx(moved / rates.to_host + moved / rates.from_host)
    assert step(framework="fsdp2-compile", offload="activations").terms_s["offload"] > 0


def test_copies_in_one_direction_share_the_link_and_both_directions_run_at_once() -> None:
    """A pass of 1 s and one of 2 s: weights of 3 s come before both, activations of 2 s leave and come back.

    Forward takes 3 s, as weights come while activations leave; backward 5 s, as both come; gradients leave meanwhile.
    """
    made = setup_of(LLAMA, Cluster.of(H100, 8), plan(framework="fsdp2-compile", offload="parameters,activations"))
    rates, zero = host_rates(made.cluster), np.zeros(len(PARTS))
    forward, backward = zero.copy(), zero.copy()
    forward[0], backward[0] = 1.0, 2.0
    passes = Passes(forward, backward, 0.0, 0.0, 0.0, 2.0)
    moved = LayerCopies(3.0 * rates.from_host, 4.0 * rates.to_host, 2.0 * rates.from_host, 0.0, 0.0)
    exposed = [copy.exposed_s() for copy in layer_copies(made, passes, moved, 10.0)]
    leaves = 2.0 * rates.from_host / rates.to_host
    assert exposed == pytest.approx([10.0 * (max(3.0, leaves) - 1.0), 10.0 * (3.0 + 2.0 - 2.0)])
    waiting = setup_of(LLAMA, Cluster.of(H100, 8), plan(framework="deepspeed", offload="parameters,activations"))
    exposed = [copy.exposed_s() for copy in layer_copies(waiting, passes, moved, 10.0)]
    assert exposed == pytest.approx([20.0, 10.0 * (4.0 - 2.0), 10.0 * leaves, 20.0])


def test_copies_of_two_passes_in_a_pair_run_beside_the_pair() -> None:
    """Passes of 1 and 2 s take 2 s as a pair, and hide 2 s of the 3 s of weights that come for both.

    Alone, the first hides 1 s of its 1.5 s, and the second all of them.
    """
    overlapped = plan(framework="megatron-te", offload="parameters", batch=8 * 32, ep=8, expert_overlap=True)
    made = setup_of(named_model("qwen3-30b-a3b"), Cluster.of(H100, 8), overlapped)
    rates, number = host_rates(made.cluster), float(made.micro_batches)
    together = pairs(made.plan, number) / number
    assert 0.9 < together < 1.0
    forward, backward = np.zeros(len(PARTS)), np.zeros(len(PARTS))
    forward[0], backward[0] = 1.0, 2.0
    moved = LayerCopies(1.5 * rates.from_host, 0.0, 0.0, 0.0, 0.0)
    passes = (Passes(forward, backward, 0.0, 0.0, 0.0, 2.0, hidden_s=hidden) for hidden in (0.0, 1.0))
    apart, paired = (sum(copy.exposed_s() for copy in layer_copies(made, each, moved, 10.0)) for each in passes)
    assert apart == pytest.approx(10.0 * 0.5)
    assert paired == pytest.approx(10.0 * ((1.0 - together) * 0.5 + together * (3.0 - 2.0)))


def test_documents_never_make_a_step_with_copies_of_the_host_slower() -> None:
    """Attention that is shorter hides less of the copies of both directions, and no more of them than it is shorter."""
    model = named_model("llama-3.1-8b")
    usual = {"tp": 4, "batch": 4, "seq": 2048, "offload": "parameters,activations", "framework": "megatron"}
    whole, packed = (
        full_step(model, Cluster.of(H100, 4), plan(**usual, documents=documents)) for documents in ((), (128,))
    )
    assert packed.time_s <= whole.time_s


def test_what_compute_hides_is_not_exposed() -> None:
    assert Copied(3.0, 1.0, 2.0).exposed_s() == 4.0
    assert Copied(1.0, 3.0, 2.0).exposed_s() == 0.0
    assert Copied(1.0, 3.0, 2.0).exposed_s(4.0) == 2.0


def test_the_interval_counts_what_hosts_differ_by() -> None:
    before, assumed = step(), step(offload="optimizer")
    stated = step(Cluster.of(H100, 8, host_bandwidth="141GB/s"), offload="optimizer")
    assert stated.time_s == pytest.approx(assumed.time_s, rel=0.1)  # it limits the copies, too
    widths = [found.high_s / found.low_s for found in (before, stated, assumed)]
    assert widths[0] < widths[1] < widths[2]
    made = setup_of(LLAMA, Cluster.of(H100, 8), plan(offload="optimizer"))
    assert offload_stretch(made, [], StepEnd(), 1.0, 1.0) == (0.0, 0.0)
    # hidden copies widen it once a slower link would expose them
    wide = offload_stretch(made, [Copied(1.0, 1.1, 1.0)], StepEnd(), 1.0, 1.0)
    assert wide.down == 0.0
    slower = math.exp(Z80 * host_rates(made.cluster).copy_deviation)
    assert wide.up == pytest.approx(math.log1p(slower - 1.1))


def test_a_superchip_has_a_host_of_its_own() -> None:
    """Its link is 7 times PCIe 5, and its GPUs share no memory of the host with others."""
    grace, pcie = host_rates(pm.Cluster("gh200-96gb", gpus=4)), host_rates(Cluster.of(H100, 4))
    assert grace.to_host > 6 * pcie.to_host
    assert grace.update == pytest.approx(REACHED * GRACE[0])
    assert grace.update == host_rates(pm.Cluster("gh200-96gb", gpus=1)).update
    assert pcie.update == pytest.approx(host_rates(Cluster.of(H100, 1)).update / 4)
    # two GPUs of a GB200 share a Grace
    assert host_rates(pm.Cluster("gb200-nvl72", gpus=4)).update == pytest.approx(0.5 * grace.update)
    times = {
        name: step(pm.Cluster(name, gpus=1), offload="activations", batch=4, framework="fsdp2-compile").terms_s
        for name in ("gh200-96gb", "h100-sxm5-80gb")
    }
    assert "offload" not in times["gh200-96gb"]
    assert times["h100-sxm5-80gb"]["offload"] > 0


def test_gpus_share_the_host() -> None:
    """At fixed work a GPU, a host with eight GPUs updates each one's parameters at an eighth of its rate."""
    each = [host_rates(Cluster.of(H100, gpus, host_bandwidth="400GB/s")) for gpus in (1, 2, 8)]
    assert [rates.update for rates in each] == [400e9, 200e9, 50e9]
    assert [min(rates.to_host, 50e9) for rates in each] == [50e9, 50e9, 50e9]
    assert host_rates(Cluster.of(H100, 8, host_bandwidth="80GB/s")).to_host == 10e9
    assert host_rates(Cluster.of(H100, 16, host_bandwidth="80GB/s")).update == 10e9


def test_a_host_without_the_memory_does_not_fit() -> None:
    few, enough = (
        full_step(LLAMA, Cluster.of(H100, 8, host_memory=size), plan(offload="optimizer")) for size in ("64GiB", "1TiB")
    )
    assert enough.fits
    assert few.fits is False
    memory = few.memory
    assert memory is not None
    assert memory.host_bytes == pytest.approx(18.0 * LLAMA.parameters, rel=1e-3)
    table = " ".join(render(report(few)).split())
    assert "(!) does not fit in the memory of a host: 134.6 GiB of 64 GiB." in table
    assert "does not fit in the memory of a GPU" not in table
    assert "Nobody stated its memory" in " ".join(render(report(step(offload="optimizer"))).split())


@pytest.mark.parametrize(
    ("machine", "values", "message"),
    [
        ("mi300a", {"offload": "optimizer"}, "shares its memory with its CPU"),
        ("h100", {"offload": "parameters", "zero": 1}, "Use zero = 3"),
        ("h100", {"offload": "optimizer", "optimizer": "muon"}, "no step on the CPU"),
        ("h100", {"offload_fraction": 0.5}, "leave offload_fraction out"),
        ("h100", {"offload": "optimizer", "offload_fraction": 0.0}, "not above 0 and at most 1"),
        ("h100", {"offload": "weights"}, "unknown offload 'weights'"),
        ("h100", {"offload": 3}, "offload = 3 is no text. Write one text with commas"),
        ("h100", {"offload": "none,optimizer"}, "has none beside optimizer. Write none or optimizer"),
    ],
)
def test_what_no_host_can_do(machine: str, values: dict[str, object], message: str) -> None:
    with pytest.raises(UsageError) as caught:
        full_step(LLAMA, pm.Cluster(machine, gpus=4), plan(**values))
    assert message in str(caught.value)


@pytest.mark.parametrize("stated", [{"host_memory": 0}, {"host_bandwidth": "1MB/s"}, {"host_memory": True}])
def test_hosts_that_are_none(stated: dict[str, object]) -> None:
    with pytest.raises(UsageError) as caught:
        Cluster.of(H100, 8, **stated)  # type: ignore[arg-type]
    assert next(iter(stated)) in str(caught.value)
    assert "Write" in caught.value.remedy


def test_a_framework_that_lacks_it_says_so() -> None:
    found = step(framework="megatron", offload="optimizer,parameters")
    assert any("megatron-te has no offload = parameters" in note for note in found.notes)
    assert not any("no offload" in note for note in step(offload="optimizer,parameters").notes)


def test_a_search_considers_the_host_only_if_asked() -> None:
    cluster, base = Cluster.of(H100, 8), plan(batch=64)
    sizes = {"tp": (1,), "cp": (1,), "pp": (1,), "micro_batch": (1, 2)}
    usual = default_space(LLAMA, cluster, base, **sizes)
    assert usual.offload == ("none",)
    asked = default_space(LLAMA, cluster, base, **sizes, offload=("none", "optimizer", "optimizer,parameters"))
    found = search(LLAMA, [cluster], base, asked, top=None)
    assert {one.plan.offload for one in found.best} == {"none", "optimizer", "optimizer,parameters"}
    assert found.best[0].plan.offload == "none"
    assert all(one.plan.zero == 3 for one in found.best if one.plan.on_host("parameters"))
    only = search(LLAMA, [cluster], base.changed(offload="optimizer"), usual, top=1)
    assert only.best[0].plan.offload == "none"


def test_parts_have_one_spelling() -> None:
    assert plan(offload="Activations + optimizer").offload == "optimizer,activations"
    assert plan(offload="").offload == plan(offload="none").offload == "none"
    assert plan(offload="optimizer", offload_fraction=0.5).changed(offload="none").offload_fraction == 1.0
