"""Recorded trainings (scripts/record_ranks.py): the tool names the rank that was slow, and by how much.

Those on gloo ran on the cores of one host. Those on NCCL are of two ranks that shared one H200: their kernels took
turns of about 2.2 ms, so that one of the two begins an exchange up to a turn later, whichever it is.
"""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import numpy as np
import pytest

from perfmodel.cli import _ranks
from perfmodel.diagnosis.intervals import minus, union
from perfmodel.diagnosis.ranks.job import Job, join
from perfmodel.diagnosis.ranks.pace import lateness
from perfmodel.diagnosis.ranks.summary import COMPUTE, DIMENSIONS, EXPOSED, summarise
from perfmodel.formats import read_profile
from perfmodel.formats.exchange_names import operation
from perfmodel.investment.decision import decide

TRACES = Path(__file__).parent / "traces"
SLEEP_S = 0.020


def job(name: str) -> Job:
    return join([summarise(read_profile(path)) for path in sorted((TRACES / name).glob("rank*.json.gz"))])


def cases(kind: str) -> list[str]:
    """Return the recordings of a kind on gloo: DDP and FSDP on two and on four processes."""
    return [f"{strategy}_{ranks}_{kind}" for strategy in ("ddp", "fsdp") for ranks in (2, 4)]


def gpu_cases(kind: str) -> list[str]:
    """Return the recordings of a kind on NCCL."""
    return [f"nccl_{strategy}_2_{kind}" for strategy in ("ddp", "fsdp")]


@pytest.mark.parametrize("name", [*cases("slow_rank"), *gpu_cases("slow_rank")])
def test_the_rank_that_sleeps_20_ms_a_step_is_named(name: str) -> None:
    recorded = job(name)
    (straggler,) = recorded.stragglers
    assert straggler.rank == 1
    # on a busy machine the others come late, too; they never wait much longer than the sleep in the median step. On
    # the GPU that the ranks share, the turns of the nine exchanges of a step fall now on the one, now on the other
    assert 0.7 * SLEEP_S < straggler.waited_per_step_s < 1.5 * SLEEP_S
    assert straggler.compute_excess_s < 0.25 * SLEEP_S, "sleeping is no computation"
    assert not straggler.computes


@pytest.mark.parametrize("name", cases("unequal"))
def test_the_rank_with_the_larger_batch_computes_longer(name: str) -> None:
    recorded = job(name)
    (straggler,) = recorded.stragglers
    assert (straggler.rank, recorded.slowest) == (1, 1)
    assert straggler.computes
    # what it computes longer is what the others wait for it
    assert straggler.compute_excess_s == pytest.approx(straggler.waited_per_step_s, rel=0.3)
    assert recorded.imbalance > 0.5


def test_a_rank_is_named_where_gradients_accumulate() -> None:
    (straggler,) = job("ddp_2_accumulated").stragglers
    assert (straggler.rank, straggler.steps_per_synchronisation) == (1, 4)
    assert straggler.waited_per_synchronisation_s == pytest.approx(4 * SLEEP_S, rel=0.2)
    assert straggler.waited_per_step_s == pytest.approx(SLEEP_S, rel=0.2)


def test_two_ranks_that_sleep_are_named_together() -> None:
    recorded = job("ddp_4_slow_pair")
    assert {one.rank for one in recorded.stragglers} == {1, 2}
    assert recorded.together is not None
    assert recorded.together.waited_per_step_s == pytest.approx(SLEEP_S, rel=0.3)
    assert recorded.together.last_share == 1.0
    wall, candidate = lateness(recorded, read_profile(recorded.ranks[recorded.pace].source))
    assert candidate is not None
    assert candidate.name == "even out ranks 1-2"
    saved_s = sum(entry.time_s for entry in wall.entries if entry.name in candidate.targets) - candidate.new_time_s
    assert saved_s == pytest.approx(6 * SLEEP_S, rel=0.3)


def test_a_rank_that_stalls_in_one_step_is_named_with_it() -> None:
    recorded = job("ddp_2_stall")
    assert recorded.stragglers == ()
    assert recorded.stall is not None
    assert recorded.stall.rank == 1
    assert recorded.stall.step_waited_s == pytest.approx(0.3, rel=0.1)
    assert recorded.stall.step_waited_s > 0.9 * recorded.stall.waited_s


@pytest.mark.parametrize("name", gpu_cases("slow_rank"))
def test_a_sleep_on_a_gpu_is_one_wait_a_step_and_counts_once(name: str) -> None:
    """The other rank reaches the exchange after the sleep 20 ms early, but for two turns; all other waits are turns."""
    recorded, turn_s = job(name), 0.0026
    waited_s = np.array([one.skew_s for one in recorded.exchanges])
    long_s = waited_s[waited_s > 2 * turn_s]
    assert long_s.size == len(recorded.ranks[0].steps)
    assert long_s == pytest.approx(SLEEP_S, abs=2 * turn_s)
    assert (waited_s[waited_s <= 2 * turn_s] < turn_s).all()


@pytest.mark.parametrize("name", gpu_cases("even"))
def test_ranks_that_share_a_gpu_wait_a_turn_of_it_at_each_exchange(name: str) -> None:
    recorded = job(name)
    assert float(np.median([one.skew_s for one in recorded.exchanges])) == pytest.approx(0.0022, rel=0.1)


@pytest.mark.parametrize("name", [*cases("even"), *gpu_cases("even")])
def test_even_ranks_have_no_straggler(name: str) -> None:
    recorded = job(name)
    assert (recorded.stragglers, recorded.together, recorded.stall) == ((), None, None)


@pytest.mark.waiting
@pytest.mark.parametrize("name", [*cases("slow_rank"), *cases("unequal"), *cases("even")])
def test_a_rank_that_waits_does_not_compute(name: str) -> None:
    """The operators of a rank are known by name: what is theirs is computation, and nothing else is."""
    paths = sorted((TRACES / name).glob("rank*.json.gz"))
    assert len(paths) == len(job(name).ranks) >= 2
    for path in paths:
        profile = read_profile(path)
        rank, timeline = summarise(profile), profile.timeline
        ops, names = timeline.ops, np.array(timeline.names)[timeline.ops.name]
        works = np.array([name.startswith(("aten::", "fsdp::", "torch.distributed.ddp")) for name in names])
        queues = np.array([name.startswith("c10d::") for name in names])
        computes = union(ops.start_s[works], ops.end_s[works])
        low, high = timeline.window_s
        inside = np.clip(minus(computes, union(ops.start_s[queues], ops.end_s[queues])), low, high)
        # autograd's own nodes without operators take a little
        assert rank.compute_s == pytest.approx(float((inside[:, 1] - inside[:, 0]).sum()), rel=0.03)


def test_a_wait_in_the_backward_pass_is_communication_and_no_computation() -> None:
    # rank 0 waits 25 ms a step in FSDP's hooks for rank 1, which sleeps
    recorded = job("fsdp_2_slow_rank")
    first, second = recorded.ranks
    assert first.compute_s == pytest.approx(second.compute_s, rel=0.1)
    assert recorded.imbalance < 0.05
    waited_s = recorded.waits_s[0, 1] - recorded.waits_s[1, 0]
    assert first.times_s[EXPOSED] - second.times_s[EXPOSED] == pytest.approx(waited_s, rel=0.1)


@pytest.mark.parametrize("name", [*cases("slow_rank"), *cases("unequal")])
def test_the_total_of_a_job_on_cpus_is_its_wall_and_savings_follow_amdahl(name: str) -> None:
    recorded = job(name)
    rank = recorded.ranks[recorded.pace]
    profile = read_profile(rank.source)
    wall, candidate = lateness(recorded, profile)
    assert rank.rank == 1
    assert wall.total_time_s == pytest.approx(rank.wall_s)
    assert candidate is not None
    saved_s = sum(entry.time_s for entry in wall.entries if entry.name in candidate.targets) - candidate.new_time_s
    steps = len(rank.steps)
    net_s = steps * recorded.stragglers[0].waited_per_step_s
    if "slow_rank" in name:
        assert saved_s == pytest.approx(net_s, rel=0.35), "the others wait as long as it sleeps"
    else:
        assert saved_s < net_s, "evened out, the others compute longer"
    ranking = decide(profile, job=recorded).ranking
    assert ranking.rows[0].overall_speedup == pytest.approx(rank.wall_s / (rank.wall_s - saved_s))


@pytest.mark.parametrize("name", sorted(path.name for path in TRACES.iterdir()))
def test_the_dimensions_of_each_rank_are_its_whole_wall(name: str) -> None:
    recorded = job(name)
    for rank in recorded.ranks:
        assert sum(rank.times_s[dimension] for dimension in DIMENSIONS) == pytest.approx(rank.wall_s)
        assert 0 < rank.times_s[EXPOSED] <= rank.communication_s * (1 + 1e-9)
        assert 0 <= rank.hidden_share < 1
        assert 0 < rank.times_s[COMPUTE] <= rank.compute_s * 1.001
        for step in rank.steps:
            assert step.exposed_s <= step.communication_s <= step.wall_s
    assert len(recorded.exchanges) == len(recorded.ranks[0].operation), "every exchange has its partners"


def test_a_gpu_trace_alone_is_a_rank(data_dir: Path) -> None:
    rank = summarise(read_profile(data_dir / "traces" / "hta_a100_2rank_nccl_resnet.json.gz"))
    assert (rank.rank, rank.world_size) == (0, 2)
    assert sum(rank.times_s.values()) == pytest.approx(rank.wall_s, rel=1e-6)
    assert set(rank.operation) >= {"all_reduce", "broadcast"}
    assert rank.bytes[rank.operation.index("all_reduce")] == 4 * 2_049_000, "the first bucket, in fp32"


@pytest.mark.parametrize(
    ("written", "name"),
    [("allreduce", "all_reduce"), ("AllReduce", "all_reduce"), ("_reduce_scatter_base", "reduce_scatter"),
     ("all_to_allv", "alltoall"), ("send", "send_recv"), ("something else", "something else")],
)  # fmt: skip
def test_operations_have_one_name(written: str, name: str) -> None:
    assert operation(written) == name


def test_the_command_names_the_rank(perfmodel, tmp_path) -> None:
    paths = sorted((TRACES / "ddp_4_slow_rank").glob("*.gz"))
    plot = tmp_path / "ranks.png"
    ran = perfmodel("diagnose", *reversed(paths), "--plot", plot)
    assert ran.code == 0, ran.err
    assert "Rank 1 is the straggler" in ran.out
    assert "clocks" not in ran.out, "the ranks of one host have one clock"
    assert plot.stat().st_size > 10_000
    assert max(map(len, ran.out.splitlines())) <= 80
    document = perfmodel("diagnose", *paths[:2], "--format", "json").json
    assert {"rank", "dimension", "time_s", "share"} <= set(document["rows"][0])
    assert document["context"]["missing_ranks"] == [2, 3]
    assert document["context"]["stragglers"][0]["rank"] == 1


def test_one_figure_a_step_in_sentence_and_table(perfmodel) -> None:
    document = perfmodel("diagnose", *sorted((TRACES / "ddp_2_unequal").glob("*.gz")), "--format", "json").json
    (wait,) = document["waits"]
    # rank 1 waits for nobody, so that the net wait is the wait of rank 0
    assert document["context"]["stragglers"][0]["waited_per_step_s"] == pytest.approx(wait["per_step_s"])


def test_one_rank_of_a_job_says_which_are_missing(perfmodel) -> None:
    trace = TRACES / "ddp_4_slow_rank" / "rank1.json.gz"
    ran = perfmodel("diagnose", trace, "--format", "json")
    assert ran.json["context"]["missing_ranks"] == [0, 2, 3]
    (note,) = [note for note in ran.json["notes"] if "alone" in note]
    assert "rank 1 alone. Missing: rank 0, 2-3 of 4." in note


def test_a_damaged_rank_is_left_out_and_named(perfmodel, tmp_path) -> None:
    paths = sorted((TRACES / "ddp_4_slow_rank").glob("*.gz"))
    cut = tmp_path / "rank3.json.gz"
    cut.write_bytes(paths[3].read_bytes()[:9000])
    ran = perfmodel("diagnose", *paths[:3], cut, "--format", "json")
    assert ran.code == 0
    assert "rank3.json.gz" in ran.err
    assert ran.json["context"]["missing_ranks"] == [3]
    alone = tmp_path / "alone.json.gz"
    document = json.loads(gzip.decompress(paths[0].read_bytes()))
    document["traceEvents"] = [event for event in document["traceEvents"] if "gloo" not in event["name"]]
    alone.write_bytes(gzip.compress(json.dumps(document).encode()))
    ran = perfmodel("diagnose", alone, cut)
    assert (ran.code, ran.out) == (3, "")
    assert "0 of 2 traces can be read" in ran.err


@pytest.mark.parametrize(("read", "code"), [(3, 130), (2, 130), (1, 130), (0, 130)])
def test_ctrl_c_keeps_the_ranks_that_were_read(perfmodel, monkeypatch, read: int, code: int) -> None:
    paths, done = sorted((TRACES / "ddp_4_slow_rank").glob("*.gz")), []
    whole = _ranks.read_ranks

    def interrupted(task: tuple[str, bool]) -> object:
        if len(done) == read:
            raise KeyboardInterrupt
        done.append(task)
        return whole(task)

    monkeypatch.setattr(_ranks, "read_ranks", interrupted)
    ran = perfmodel("diagnose", *paths, "--format", "json")
    assert ran.code == code
    assert "interrupted." in ran.err
    if read < 2:  # one rank is no job
        assert ran.out == ""
        return
    assert f"{read} of 4 files were read" in ran.err
    assert ran.json["context"]["missing_ranks"] == list(range(read, 4))
    assert ran.json["context"]["left_out"] == [f"{4 - read} traces, since the run was interrupted"]


def test_options_of_one_profile_are_refused(perfmodel, tmp_path) -> None:
    paths = sorted((TRACES / "ddp_2_even").glob("*.gz"))
    ran = perfmodel("diagnose", *paths, "--plan-output", tmp_path / "plan.toml")
    assert (ran.code, ran.out) == (2, "")
