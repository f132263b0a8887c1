"""A rank without its waits, what lateness costs a job, and jobs on another machine."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import numpy as np
import pytest

import perfmodel as pm
from perfmodel.core.vocabulary import EventKind
from perfmodel.diagnosis.ranks.devices import devices, of_device
from perfmodel.diagnosis.ranks.job import Job, join
from perfmodel.diagnosis.ranks.pace import lateness, without_waits
from perfmodel.diagnosis.ranks.projection import project_job, project_rank
from perfmodel.diagnosis.ranks.summary import summarise
from perfmodel.formats import read_profile
from perfmodel.profile.profile import Profile, ProfileEntry
from perfmodel.profile.timeline import ApiCalls, Exchanges, GpuEvents, Timeline
from perfmodel.render import table as table_format

TRACES = Path(__file__).parent / "traces"


def one_gpu() -> Profile:
    """Return a kernel of 1 ms, an exchange of 5 ms after it and a kernel of 1 ms after that, all launched at once."""
    start, length = np.array([0.0, 1e-3, 6e-3]) + 1e-5, np.array([1e-3, 5e-3, 1e-3])
    kinds = [EventKind.KERNEL.code, EventKind.COMMUNICATION.code, EventKind.KERNEL.code]
    none = np.full(3, -1)
    gpu = GpuEvents(start, length, np.array([0, 1, 0]), category=np.array(kinds), stream=np.zeros(3, int),
                    device=np.zeros(3, int), launch=np.arange(3), op=none, bytes=np.full(3, np.nan), direction=none,
                    pinned=none, entry=np.array([0, 1, 0]))  # fmt: skip
    api = ApiCalls(np.arange(3) * 1e-6, np.full(3, 1e-6), np.full(3, 2), np.zeros(3, int), np.zeros(3, int), none)
    timeline = Timeline(("gemm", "nccl", "cudaLaunchKernel"), gpu, api, window_s=(0.0, 7.01e-3), origin_s=100.0)
    entries = (
        ProfileEntry("gemm", 2e-3, 2, EventKind.KERNEL),
        ProfileEntry("nccl", 5e-3, 1, EventKind.COMMUNICATION),
    )
    return Profile(entries, timeline=timeline)


def test_a_rank_without_its_waits_is_as_much_shorter() -> None:
    profile = one_gpu()
    alone = without_waits(profile, np.array([100.001 + 1e-5]), np.array([4e-3]))
    assert [entry.time_s for entry in alone.entries] == pytest.approx([2e-3, 1e-3])
    assert alone.timeline.gpu.end_s.max() == pytest.approx(3e-3, abs=2e-5), "7 ms less 4 ms"
    same = without_waits(profile, np.array([100.001 + 1e-5]), np.array([0.0]))
    assert same.timeline.gpu.end_s.max() == pytest.approx(profile.timeline.gpu.end_s.max())
    elsewhere = without_waits(profile, np.array([50.0]), np.array([4e-3]))
    assert elsewhere.entries == profile.entries, "an exchange at another time is another one"


@pytest.mark.parametrize(("strategy", "share"), [("ddp", 0.95), ("fsdp", 0.75)])
def test_the_rank_that_sleeps_sets_the_pace_and_the_other_one_without_its_waits_is_short(
    strategy: str, share: float
) -> None:
    """Rank 0's compute stream waits for the exchange; DDP's host then waits too, FSDP's launches on in the meantime."""
    paths = sorted((TRACES / f"nccl_{strategy}_2_slow_rank").glob("rank*.json.gz"))
    profiles = [read_profile(path) for path in paths]
    job = join([summarise(profile) for profile in profiles])
    machine = pm.hardware("h200-sxm-141gb")
    ranks = [
        project_rank(profile, job.waits_of(index), machine, machine, host=1.0) for index, profile in enumerate(profiles)
    ]
    assert project_job(job, ranks, machine, machine).pace == 1
    waits_s = float(job.waits_of(0)[1].sum())
    alone_s = ranks[0].whole.time_s
    assert waits_s > 0.1
    assert share * waits_s < job.ranks[0].wall_s - alone_s <= waits_s * 1.001
    # evened out, the job takes about what the other rank takes alone
    _, late = lateness(job, without_waits(profiles[1], *job.waits_of(1)))
    evened_s = ranks[1].whole.time_s - float(job.waits_s[0, 1] - job.waits_s[1, 0])
    assert late is not None
    assert evened_s == pytest.approx(alone_s, rel=0.15)


@pytest.fixture(scope="module")
def gpu_job(data_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Job, list[Path]]:
    """Return a recorded rank, and a copy of it whose clock is 5 s ahead and that comes to each exchange later."""
    source = data_dir / "traces" / "hta_a100_2rank_nccl_resnet.json.gz"
    document = json.loads(gzip.decompress(source.read_bytes()))
    document["distributedInfo"]["rank"] = 1
    for event in document["traceEvents"]:
        if "ts" in event:
            event["ts"] += 5e6
        if event.get("cat") == "kernel" and "nccl" in event["name"]:
            later_us = 0.8 * event["dur"]
            event["ts"] += later_us
            event["dur"] -= later_us
    other = tmp_path_factory.mktemp("job") / "rank1.json"
    other.write_text(json.dumps(document))
    paths = [source, other]
    return join([summarise(read_profile(path)) for path in paths]), paths


def test_a_projected_job_takes_as_long_as_its_slowest_rank(gpu_job: tuple[Job, list[Path]]) -> None:
    job, paths = gpu_job
    here, there = pm.hardware("a100-sxm4-40gb"), pm.hardware("h100-sxm5-80gb")
    ranks = [
        project_rank(read_profile(path), job.waits_of(index), here, there, host=0.5) for index, path in enumerate(paths)
    ]
    result = project_job(job, ranks, here, there)
    wholes = [one.whole for one in result.ranks]
    assert result.whole.projected_time_s == max(whole.projected_time_s for whole in wholes)
    assert result.whole.low <= result.whole.projected_time_s <= result.whole.high
    assert wholes[0].time_s <= job.ranks[0].wall_s * 1.001
    waited = job.waits_s[0, 1]
    exposed = [sum(part.time_s for part in one.parts if "allreduce" in part.name) for one in result.ranks]
    assert waited > 10e-3
    assert exposed[0] == pytest.approx(exposed[1], rel=0.25), "without waits the exchanges of both last as long"
    assert max(len(line) for line in table_format.render(result.report(), width=80).splitlines()) <= 80


def test_the_gpus_of_one_file_are_ranks(data_dir: Path) -> None:
    profile = read_profile(data_dir / "nsys" / "ginda_h100_2gpu_megatron_before.sqlite")
    assert devices(profile) == (0, 1)
    parts = [of_device(profile, device) for device in (0, 1)]
    assert sum(part.total_time_s for part in parts) == pytest.approx(profile.total_time_s)
    assert sum(len(part.timeline.gpu) for part in parts) == len(profile.timeline.gpu)
    for part in parts:
        gpu = part.timeline.gpu
        names = {part.entries[entry].name for entry in np.unique(gpu.entry)}
        assert names == {entry.name for entry in part.entries}
    job = join([summarise(part, device) for device, part in enumerate(parts)])
    assert len(job.exchanges) == 33
    assert {one.key.operation for one in job.exchanges} == {"send_recv"}


def test_exchanges_of_two_gpus_that_start_and_last_alike_are_one_of_each() -> None:
    start_s, count = np.array([0.0, 0.0, 1.0, 1.0]), 4
    names, device = np.zeros(count, dtype=np.int64), np.array([0, 1, 1, 0])
    gpu = GpuEvents(
        start_s,
        np.full(count, 0.5),
        names,
        category=np.full(count, EventKind.COMMUNICATION.code),
        device=device,
        entry=np.full(count, -1),
    )
    exchanges = Exchanges(start_s, np.full(count, 0.5), names, sequence=np.array([7, 7, 8, 8]))
    profile = Profile((), timeline=Timeline(("all_reduce",), gpu, exchanges=exchanges, window_s=(0.0, 2.0)))
    for number in (0, 1):
        timeline = of_device(profile, number).timeline
        assert timeline is not None
        assert timeline.exchanges.sequence.tolist() == [7, 8]
