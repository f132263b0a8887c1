"""`perfmodel bench all_reduce --num-gpus 2`: real ranks on this machine, over gloo. No test asserts a time."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from perfmodel.cli.app import run

psutil = pytest.importorskip("psutil")
torch = pytest.importorskip("torch")
pytestmark = pytest.mark.skipif(
    sys.platform != "linux" or not torch.distributed.is_available(), reason="ranks are started and killed on Linux"
)

Program = Callable[..., tuple[int, str, str]]

SPEC = """
name = "test-cpu"
vendor = "none"
architecture = "none"
kind = "cpu"
[memory.dram]
bandwidth = "10 GB/s"
[peak.vector]
fp32 = "300 GFLOP/s"
[link.processes]
per_direction = "50 GB/s"
latency = "10 us"
"""
SIX = [
    word
    for name in ("all_reduce", "all_gather", "reduce_scatter", "alltoall", "broadcast", "send_recv")
    for word in (name, "bytes=4KiB")
]


@pytest.fixture
def spec(tmp_path: Path) -> Path:
    path = tmp_path / "test-cpu.toml"
    path.write_text(SPEC)
    return path


def started(*words: object, module: tuple[str, ...] = ("-m", "perfmodel")) -> subprocess.Popen[str]:
    """Start a program without the variables of a job that may run the tests."""
    environment = {key: value for key, value in os.environ.items() if key not in ("RANK", "WORLD_SIZE", "LOCAL_RANK")}
    line = [sys.executable, *module, *map(str, words)]
    return subprocess.Popen(
        line, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment, start_new_session=True
    )


def bench(spec: Path, *words: object) -> tuple[object, ...]:
    return ("bench", *words, "--num-gpus", 2, "--device", "cpu", "--on", spec)


@pytest.fixture
def in_this_process(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Iterator[Program]:
    """Run the program here, where torch is imported already; what its ranks print is captured as well."""
    for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK"):
        monkeypatch.delenv(name, raising=False)
    handlers = {
        number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
    }

    def call(*words: object) -> tuple[int, str, str]:
        code = run([str(word) for word in words])
        return code, *capfd.readouterr()

    yield call
    for number, handler in handlers.items():  # torch's launcher leaves its own
        signal.signal(number, handler)


@pytest.mark.slow
def test_every_collective_is_checked_and_timed_by_all_ranks(
    spec: Path, tmp_path: Path, in_this_process: Program
) -> None:
    path = tmp_path / "r.json"
    line = bench(spec, *SIX, "all_reduce", "bytes=1001", "--time-limit", 0.05, "--min-time", 0, "-o", path)
    code, out, err = in_this_process(*line)
    assert (code, out) == (0, ""), err
    document = json.loads(path.read_text())
    rows = document["rows"]
    assert [row["op"] for row in rows[:6]] == SIX[::2]
    assert all(row["status"] == "ok" and row["correct"] for row in rows[:6])
    assert all(row["bus_bytes_per_s"] <= row["algorithm_bytes_per_s"] for row in rows[:6]), "two ranks"
    assert rows[6]["status"] == "skipped", "1001 B are no whole numbers"
    assert document["context"]["ranks"]["size"] == 2
    assert document["context"]["ranks"]["backend"] == "gloo"
    code, out, err = in_this_process("validate", path, "--on", spec, "--format", "json")
    assert code == 0, err
    assert [row["rows"] for row in json.loads(out)["rows"]] == [6]


def kill_rank(rank: int, path: Path) -> None:
    """End a rank of this process once the record has a row: the launcher starts one after the other, each by spawn."""
    waited = time.monotonic() + 100
    while not path.exists() and time.monotonic() < waited:
        time.sleep(0.05)
    ranks = sorted(child.pid for child in psutil.Process().children() if "spawn_main" in " ".join(child.cmdline()))
    os.kill(ranks[rank], signal.SIGKILL)


@pytest.mark.slow
def test_a_killed_rank_is_named_and_no_finished_row_is_lost(
    spec: Path, tmp_path: Path, in_this_process: Program
) -> None:
    path = tmp_path / "r.json"
    # 64 sizes of at least 0.1 s: the first row is there long before the last
    line = bench(spec, "all_reduce", "bytes=1KiB..64KiB+1KiB", "--time-limit", 60, "--min-time", 0.1, "-o", path)
    killer = threading.Thread(target=kill_rank, args=(1, path), daemon=True)
    killer.start()
    code, _, err = in_this_process(*line)
    assert code == 4
    assert "rank 1 of 2 failed: signal 9 ended it" in err
    assert "Traceback" not in err
    assert json.loads(path.read_text())["rows"][0]["status"] == "ok"


STUCK = """
import sys, time
from perfmodel.measure.collectives import ranks
measured = ranks._outcome
def outcome(job, group, device, rule):
    if group.rank == 1 and job.op.bytes == 2048:
        time.sleep(60)
    return measured(job, group, device, rule)
ranks._outcome = outcome
from perfmodel.cli.app import run
sys.exit(run(sys.argv[1:]))
"""


@pytest.mark.slow
def test_ranks_of_torchrun_join_and_a_rank_that_hangs_is_named(spec: Path, tmp_path: Path) -> None:
    script, path = tmp_path / "stuck.py", tmp_path / "r.json"
    script.write_text(STUCK)
    launcher = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", str(script))
    limits = ("--rank-timeout", 2, "--time-limit", 0.05, "--min-time", 0)
    line = bench(spec, "all_reduce", "bytes=1KiB/2KiB", *limits, "-o", path)
    ran = started(*line, module=launcher)
    _, err = ran.communicate(timeout=100)
    assert ran.returncode != 0
    assert "not all 2 ranks answered" in err
    assert "rank 1" in err.lower().replace("ranks 1", "rank 1")
    assert [row["params"]["bytes"] for row in json.loads(path.read_text())["rows"]] == [1024]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("all_reduce", "bytes=1KiB", "--num-gpus", 1), "1 ranks cannot exchange"),
        (("gemm", "m=8", "n=8", "k=8", "--num-gpus", 2), "gemm is no exchange"),
        (("all_reduce", "bytes=1KiB", "num_gpus=4", "--num-gpus", 2), "num_gpus=4 is not --num-gpus 2"),
        (("all_reduce", "bytes=1KiB", "--num-gpus", 2, "--rank-timeout", 0), "no number of seconds"),
        (("all_reduce", "bytes=1KiB", "--num-gpus", 2, "--check"), "--check does not apply"),
    ],
)
def test_impossible_requests_are_one_message(perfmodel, words, message) -> None:
    ran = perfmodel("bench", *words, "--device", "cpu")
    assert (ran.code, ran.out) == (2, "")
    assert message in ran.err


def test_calibrate_links_needs_ranks(perfmodel) -> None:
    ran = perfmodel("calibrate", "--links")
    assert (ran.code, ran.out) == (2, "")
    assert "--num-gpus 2" in ran.err


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--resume",), "only a JSON record can be resumed"),
        (("--time-limit", "0"), "a time limit of 0.0 s is not positive"),
        (("--algorithms",), "--algorithms does not apply to collectives"),
    ],
)
def test_wrong_options_start_no_rank(perfmodel, monkeypatch, options, said):
    monkeypatch.setattr("perfmodel.kernels.distributed.launch.launch", lambda *_: pytest.fail("a rank was started"))
    ran = perfmodel("bench", "all_reduce", "bytes=1KiB", "--num-gpus", "2", "--device", "cpu", *options)
    assert ran.code == 2
    assert ran.err.count("\n") == 1
    assert said in ran.err


def test_ctrl_c_ends_the_launcher_as_an_interruption(monkeypatch):
    pytest.importorskip("torch")
    import signal

    from torch.distributed.elastic.multiprocessing.api import SignalException
    from torch.distributed.launcher import api

    from perfmodel.kernels.distributed.launch import launch

    def interrupted(*_):
        blocked = signal.pthread_sigmask(signal.SIG_BLOCK, ())
        assert signal.SIGINT in blocked  # what is started here does not print a traceback
        raise SignalException("got signal", signal.SIGINT)

    monkeypatch.setattr(api, "elastic_launch", lambda *_: interrupted)
    with pytest.raises(KeyboardInterrupt):
        launch(2, print, [])
    assert signal.SIGINT not in signal.pthread_sigmask(signal.SIG_BLOCK, ())
