"""`diagnose`, `roi`, `whatif` and `project` on the ranks of a job: options, missing, mixed and damaged ranks."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

TRACES = Path(__file__).parents[1] / "diagnosis" / "ranks" / "traces"
SLOW = sorted((TRACES / "ddp_4_slow_rank").glob("*.gz"))


def test_roi_of_a_job_begins_with_its_straggler(perfmodel) -> None:
    ran = perfmodel("roi", *SLOW, "--format", "json", "--effort", "host-work=4")
    assert ran.code == 0, ran.err
    row = ran.json["rows"][0]
    assert (row["name"], row["dev_days"]) == ("even out rank 1", 4)
    # five or six steps, in which it sleeps 20 ms
    assert 0.05 < row["time_saved_s"] < 0.2
    assert ran.json["context"]["profiles"] == [str(path) for path in SLOW]
    none = perfmodel("roi", *SLOW, "--candidates", "none", "--format", "json").json
    assert all(row["name"] != "even out rank 1" for row in none["rows"])


def test_the_heading_counts_the_entries_that_take_time(perfmodel) -> None:
    """Entries that others overlap can be named in a plan; the headroom of each part does not list them."""
    lines = perfmodel("roi", *SLOW).out.splitlines()
    summaries = " ".join(lines).split("ms in ")[1:]
    taking = {summary.split()[0] for summary in summaries if summary.split()[1].startswith("entr")}
    assert len(taking) == 1, taking


def scenario(folder: Path, *targets: str, **more: object) -> Path:
    """Write a scenario that takes some entries out."""
    path = folder / "steps.json"
    path.write_text(json.dumps({"steps": [{"name": "less", "kind": "remove", "targets": list(targets), **more}]}))
    return path


def test_a_step_that_takes_the_wait_out_saves_what_roi_says(perfmodel, tmp_path) -> None:
    steps = scenario(tmp_path, "*the others wait for this rank*")
    ran = perfmodel("whatif", *SLOW, steps, "--format", "json")
    assert ran.code == 0, ran.err
    (row,) = ran.json["rows"]
    saved = perfmodel("roi", *SLOW, "--format", "json").json["rows"][0]["time_saved_s"]
    assert row["time_saved_s"] == pytest.approx(saved, rel=1e-9)
    assert ran.json["context"]["profiles"] == [str(path) for path in SLOW]
    assert "rank 1 (rank1.json.gz) sets the pace" in ran.json["notes"][0]
    shared = perfmodel("whatif", *SLOW, steps, "--format", "json", "--workers", "2")
    assert shared.out == ran.out


def test_a_step_of_a_job_is_a_step_of_the_rank_that_sets_its_pace(perfmodel, tmp_path) -> None:
    steps = scenario(tmp_path, "aten::mm*")
    of_job, alone = (perfmodel("whatif", *ranks, steps, "--format", "json") for ranks in (SLOW, SLOW[1:2]))
    (row,), (own,) = of_job.json["rows"], alone.json["rows"]
    assert row["time_saved_s"] == pytest.approx(own["time_saved_s"])  # other ranks do not run those products
    assert row["total_time_s"] > own["total_time_s"]  # without its sleep, which no operator shows
    assert alone.json["context"]["profile"] == str(SLOW[1])


@pytest.mark.waiting
def test_a_projected_job_lists_its_ranks(perfmodel, data_dir, tmp_path) -> None:
    trace = data_dir / "traces" / "hta_a100_2rank_nccl_resnet.json.gz"
    ranks = [
        changed(trace, tmp_path / f"rank{n}.json.gz", distributedInfo={"rank": n, "world_size": 4}) for n in (0, 1)
    ]
    command = ("project", *ranks, "--from", "a100-sxm4-40gb", "--to", "h100-sxm5-80gb")
    ran = perfmodel(*command, "--format", "json")
    assert ran.code == 0, ran.err
    assert [row["name"] for row in ran.json["rows"]] == ["rank 0", "rank 1"]
    (whole,) = ran.json["whole"]
    assert whole["projected_time_s"] == max(row["projected_time_s"] for row in ran.json["rows"])
    assert ran.json["context"]["missing_ranks"] == [2, 3]
    assert "Missing: rank 2-3 of 4" in perfmodel(*command).out
    drawn = tmp_path / "job.svg"
    assert max(map(len, perfmodel(*command, "--plot", drawn).out.splitlines())) <= 80
    assert "<svg" in drawn.read_text(encoding="utf-8")


@pytest.mark.parametrize("ranks", [SLOW, SLOW[:1]])
def test_times_of_a_cpu_are_not_projected_from_a_gpu(perfmodel, cpu_spec, ranks) -> None:
    for command in (("project", *ranks, "--from", "a100-sxm4-80gb"), ("project", *ranks), ("roi", *SLOW[:1])):
        ran = perfmodel(*command, "--to", "h100")
        assert (ran.code, ran.out) == (2, "")
        assert "has no GPU work: its times are those of operators on the CPU" in ran.err
        assert "ProfilerActivity.CUDA" in ran.err
    ran = perfmodel("project", *ranks, "--from", cpu_spec, "--to", cpu_spec, "--format", "json")
    assert ran.code == 0, ran.err
    assert ran.json["whole"][0]["projected_time_s"] == pytest.approx(ran.json["whole"][0]["time_s"])


def test_the_total_of_a_job_on_cpus_is_its_wall(perfmodel) -> None:
    ran = perfmodel("roi", *SLOW, "--format", "json")
    steps = perfmodel("diagnose", *SLOW, "--format", "json").json["rows"]
    wall_s = sum(row["time_s"] for row in steps if row["rank"] == 1)
    assert ran.json["context"]["total_time_s"] == pytest.approx(wall_s)
    row = ran.json["rows"][0]
    assert row["overall_speedup"] == pytest.approx(wall_s / (wall_s - row["time_saved_s"]))


@pytest.mark.parametrize(
    ("command", "said"),
    [
        (("diagnose", *SLOW, "--by", "op"), "--by has no effect: it belongs to one profile"),
        (("diagnose", *SLOW, "--effort", "fuse=3"), "--effort has no effect: it belongs to one profile"),
        (("diagnose", SLOW[0], "--workers", "2"), "--workers has no effect: one profile is read by one process"),
        (("roi", SLOW[0], "--workers", "2"), "--workers has no effect: one profile is read by one process"),
        (("whatif", SLOW[0], "steps.toml", "--workers", "2"), "--workers has no effect: one profile is read by one"),
        (("roi", SLOW[0], "--host", "2"), "--host has no effect: it belongs to a projection"),
        (("roi", *SLOW, "--on", "a100-sxm4-40gb", "--to", "h100"), "--to has no effect: the candidates of a job"),
        (("project", SLOW[0], "--scheduler", "tcp://h:1", "--from", "a100", "--to", "h100"), "--scheduler"),
        (("project", *SLOW, "--to", "h100"), "--from: the job has no GPU work"),
    ],
)
def test_options_without_an_effect_are_refused(perfmodel, command, said) -> None:
    ran = perfmodel(*command)
    assert (ran.code, ran.out) == (2, "")
    assert said in ran.err


def changed(path: Path, target: Path, **header: object) -> Path:
    """Write a trace with other keys in its header."""
    document = json.loads(gzip.decompress(path.read_bytes()))
    document.update(header)
    target.write_bytes(gzip.compress(json.dumps(document).encode()))
    return target


@pytest.mark.parametrize("command", [("diagnose",), ("roi",), ("project", "--from", "a100-sxm4-40gb", "--to", "h100")])
def test_what_is_no_job_is_one_message(perfmodel, tmp_path, command) -> None:
    verb, *options = command
    twice = perfmodel(verb, SLOW[0], SLOW[0], *options)
    assert (twice.code, twice.out) == (3, "")
    assert "rank0.json.gz: is given 2 times" in twice.err
    copy = changed(SLOW[0], tmp_path / "copy.json.gz")
    assert "rank 0 is given 2 times" in perfmodel(verb, SLOW[0], copy, *options).err
    other = changed(SLOW[1], tmp_path / "other.json.gz", distributedInfo={"rank": 1, "world_size": 8})
    mixed = perfmodel(verb, SLOW[0], other, *options)
    assert (mixed.code, mixed.out) == (3, "")
    assert "jobs with 4 and 8 ranks" in mixed.err
    nothing = perfmodel(verb, SLOW[0], tmp_path / "none.json.gz", *options)
    assert (nothing.code, nothing.out) == (3, "")
    assert "none.json.gz" in nothing.err


def test_a_scenario_of_a_job_that_is_none_is_one_message(perfmodel, tmp_path) -> None:
    steps = scenario(tmp_path, "aten::mm*")
    twice = perfmodel("whatif", SLOW[0], SLOW[0], steps)
    assert (twice.code, twice.out) == (3, "")
    assert "rank0.json.gz: is given 2 times" in twice.err
    forgotten = perfmodel("whatif", *SLOW)  # the last trace is no scenario
    assert (forgotten.code, forgotten.out) == (3, "")
    assert "rank3.json.gz" in forgotten.err
    unknown = perfmodel("whatif", *SLOW, scenario(tmp_path, "aten::nm*"))
    assert (unknown.code, unknown.out) == (3, "")
    assert "Traceback" not in unknown.err


def test_a_truncated_rank_is_named_once(perfmodel, tmp_path) -> None:
    cut = tmp_path / "rank3.json.gz"
    cut.write_bytes(SLOW[3].read_bytes()[:9000])
    ran = perfmodel("roi", *SLOW[:3], cut, "--format", "json")
    assert ran.code == 0
    assert ran.err.count("rank3.json.gz") == 1
    assert sum("rank3.json.gz" in note for note in ran.json["notes"]) == 1


def test_the_gpus_of_one_export_are_a_job(perfmodel, data_dir) -> None:
    export = data_dir / "nsys" / "ginda_h100_2gpu_megatron_before.sqlite"
    ran = perfmodel("diagnose", export, "--ranks", "--on", "h100-sxm5-80gb", "--format", "json")
    assert ran.code == 0, ran.err
    assert ran.json["context"]["ranks"] == [0, 1]
    assert {row["operation"] for row in ran.json["exchanges"]} == {"send_recv"}
    ran = perfmodel("diagnose", SLOW[0], "--ranks")
    assert (ran.code, ran.out) == (3, "")
    assert "holds one rank; the ranks of a job need two" in ran.err
