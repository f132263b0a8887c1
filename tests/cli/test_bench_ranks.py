"""`perfmodel bench all_reduce --num-gpus 2`: real ranks on this machine, over gloo. No test asserts a time."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from perfmodel.cli._bench_collectives import ranks_of_job
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


#: how the variables of jobs begin, one of which may run the tests
OF_JOBS = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_", "SLURM_")


def started(
    *words: object, module: tuple[str, ...] = ("-m", "perfmodel"), variables: dict[str, str] | None = None
) -> subprocess.Popen[str]:
    """Start a program with some variables, and without those of a job."""
    environment = {key: value for key, value in os.environ.items() if not key.startswith(OF_JOBS)} | (variables or {})
    line = [sys.executable, *module, *map(str, words)]
    return subprocess.Popen(
        line, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment, start_new_session=True
    )


def bench(spec: Path, *words: object) -> tuple[object, ...]:
    return ("bench", *words, "--num-gpus", 2, "--device", "cpu", "--on", spec)


@pytest.fixture
def in_this_process(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Iterator[Program]:
    """Run the program here, where torch is imported already; what its ranks print is captured as well."""
    for name in [name for name in os.environ if name.startswith(OF_JOBS)]:
        monkeypatch.delenv(name)
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
    code, out, err = in_this_process("validate", path, "--format", "json")  # on the specification in it
    assert code == 0, err
    assert [row["rows"] for row in json.loads(out)["rows"]] == [6]


def signal_rank(rank: int, path: Path, number: int) -> None:
    """Signal a rank of this process once the record has a row: the launcher starts one after the other, by spawn."""
    waited = time.monotonic() + 100
    while not path.exists() and time.monotonic() < waited:
        time.sleep(0.05)
    ranks = sorted(child.pid for child in psutil.Process().children() if "spawn_main" in " ".join(child.cmdline()))
    os.kill(ranks[rank], number)


@pytest.mark.waiting
@pytest.mark.parametrize(
    ("rank", "number", "message"),
    [
        (1, signal.SIGKILL, "rank 1 of 2 failed: signal 9 ended it; "),
        (0, signal.SIGSTOP, "rank 0 did not answer within 3 s; "),
    ],
)
def test_a_rank_that_ends_or_stops_is_named_and_no_finished_row_is_lost(
    spec: Path, tmp_path: Path, in_this_process: Program, rank: int, number: int, message: str
) -> None:
    path = tmp_path / "r.json"
    # 64 sizes of at least 0.1 s: the first row is there long before the last
    limits = ("--time-limit", 60, "--min-time", 0.1, "--rank-timeout", 3)
    line = bench(spec, "all_reduce", "bytes=1KiB..64KiB+1KiB", *limits, "-o", path)
    signaller = threading.Thread(target=signal_rank, args=(rank, path, number), daemon=True)
    signaller.start()
    code, _, err = in_this_process(*line)
    assert code == 4
    rows = json.loads(path.read_text())["rows"]
    assert message in err
    assert f"{len(rows)} row{' is' if len(rows) == 1 else 's are'} in {path}." in err
    assert "Traceback" not in err
    assert "SIGKILL" not in err, "torch asked a stopped process to end, and waited half a minute"
    assert rows[0]["status"] == "ok"


@pytest.mark.waiting
def test_sigterm_ends_the_ranks_as_ctrl_c_does(spec: Path, tmp_path: Path, ended: list[subprocess.Popen[str]]) -> None:
    path = tmp_path / "r.json"
    limits = ("--time-limit", 60, "--min-time", 0.1)
    process = started(*bench(spec, "all_reduce", "bytes=1KiB..64KiB+1KiB", *limits, "-o", path))
    ended.append(process)
    waited = time.monotonic() + 100
    while not path.exists() and time.monotonic() < waited:
        time.sleep(0.05)
    process.terminate()
    _, err = process.communicate(timeout=100)
    assert process.returncode == 143, err
    assert f"{len(json.loads(path.read_text())['rows'])} of 64 rows are measured and kept in {path}" in err
    assert err.endswith("perfmodel: interrupted.\n")


@pytest.mark.waiting
def test_a_pipe_that_is_closed_is_no_failure_of_a_rank(spec: Path, ended: list[subprocess.Popen[str]]) -> None:
    limits = ("--time-limit", 0.05, "--min-time", 0)
    process = started(*bench(spec, "all_reduce", "bytes=1KiB", *limits, "--format", "json"))
    ended.append(process)
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.close()
    err = process.stderr.read()
    assert process.wait(100) == 0, err
    assert "failed" not in err


@pytest.mark.slow
@pytest.mark.waiting
def test_the_tasks_of_srun_join(spec: Path, tmp_path: Path) -> None:
    path = tmp_path / "r.json"
    line = bench(spec, "all_reduce", "bytes=1KiB", "--time-limit", 0.05, "--min-time", 0, "-o", path)
    step = {"SLURM_JOB_ID": str(os.getpid()), "SLURM_STEP_ID": "0", "SLURM_NTASKS": "2", "SLURM_NNODES": "1"}
    ranks = [started(*line, variables={**step, "SLURM_PROCID": task, "SLURM_LOCALID": task}) for task in "01"]
    texts = [rank.communicate(timeout=100)[1] for rank in ranks]
    assert [rank.returncode for rank in ranks] == [0, 0], texts
    assert [text.count("wrote") for text in texts] == [1, 0]
    assert json.loads(path.read_text())["context"]["ranks"]["size"] == 2


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


@pytest.mark.waiting
def test_ranks_of_torchrun_join_and_a_rank_that_hangs_is_named(spec: Path, tmp_path: Path) -> None:
    script, path = tmp_path / "stuck.py", tmp_path / "r.json"
    script.write_text(STUCK)
    launcher = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", str(script))
    limits = ("--rank-timeout", 2, "--time-limit", 0.05, "--min-time", 0)
    # without --num-gpus: the launcher says how many there are
    line = ("bench", "all_reduce", "bytes=1KiB/2KiB", "--device", "cpu", "--on", spec, *limits, "-o", path)
    ran = started(*line, module=launcher)
    _, err = ran.communicate(timeout=100)
    assert ran.returncode != 0
    assert "rank 1 did not answer within 2 s" in err
    assert [row["params"]["bytes"] for row in json.loads(path.read_text())["rows"]] == [1024]


#: rank 1 ends or stops before its second exchange; rank 0 waits for it where no exception and no exit gets through, as
#: for a kernel of NCCL
FOR_EVER = """
import atexit, os, sys, threading, time
from perfmodel.kernels.distributed import group
from perfmodel.kernels.distributed.errand import Errands
from perfmodel.measure.collectives import ranks
measured = ranks._outcome
def outcome(job, group, device, rule):
    if job.op.bytes == 2048:
        if group.rank == 1:
            os.kill(os.getpid(), SIGNAL)
        atexit.register(time.sleep, 1000)
        time.sleep(1000)
    return measured(job, group, device, rule)
ranks._outcome = outcome
group._errands = lambda backend, device, timeout_s: Errands(timeout_s, str)
from perfmodel.cli import app
if __name__ == "__main__":
    app.main()
"""


@pytest.fixture
def ended() -> Iterator[list[subprocess.Popen[str]]]:
    """Collect processes; at the end of the test each is killed with all that it started."""
    processes: list[subprocess.Popen[str]] = []
    yield processes
    for process in processes:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


@pytest.mark.waiting
@pytest.mark.parametrize("launcher", ["none", "perfmodel"])
def test_a_rank_that_waits_on_its_device_for_ever_names_the_missing_one(
    spec: Path, tmp_path: Path, ended: list[subprocess.Popen[str]], launcher: str
) -> None:
    script, path = tmp_path / "for_ever.py", tmp_path / "r.json"
    # perfmodel's own launcher notices a rank that ends by itself; one that stops it leaves to the others
    number = signal.SIGKILL if launcher == "none" else signal.SIGSTOP
    script.write_text(FOR_EVER.replace("SIGNAL", str(int(number))))
    limits = ("--rank-timeout", 2, "--time-limit", 0.05, "--min-time", 0)
    line = bench(spec, "all_reduce", "bytes=1KiB/2KiB", *limits, "-o", path)
    if launcher == "none":
        job = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
        ranks = [{**job, "RANK": rank, "LOCAL_RANK": rank} for rank in "01"]
    else:
        ranks = [{}]
    ended += [started(*line, module=(str(script),), variables=variables) for variables in ranks]
    _, err = ended[0].communicate(timeout=100)
    assert ended[0].returncode == 4, err
    assert "rank 1 did not answer within 2 s" in err
    assert "Traceback" not in err
    assert [row["params"]["bytes"] for row in json.loads(path.read_text())["rows"]] == [1024]


def test_a_launcher_says_how_many_ranks_exchange(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith(OF_JOBS)]:
        monkeypatch.delenv(name)
    assert ranks_of_job(["all_reduce", "bytes=1KiB"]) is None, "no job"
    monkeypatch.setenv("RANK", "3")
    monkeypatch.setenv("WORLD_SIZE", "16")
    assert ranks_of_job(["all_reduce", "bytes=1KiB"]) == 16
    assert ranks_of_job(["gemm", "m=8", "n=8", "k=8"]) is None, "each rank measures it alone"
    monkeypatch.setenv("WORLD_SIZE", "1")
    assert ranks_of_job(["all_reduce", "bytes=1KiB"]) is None


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("all_reduce", "bytes=1KiB", "--num-gpus", 1), "1 ranks cannot exchange"),
        (("gemm", "m=8", "n=8", "k=8", "--num-gpus", 2), "gemm is no exchange"),
        (("all_reduce", "bytes=1KiB", "num_gpus=4", "--num-gpus", 2), "num_gpus=4 is not --num-gpus 2"),
        (("all_reduce", "bytes=1KiB", "--num-gpus", 2, "--rank-timeout", 0), "no number of seconds"),
        (("all_reduce", "bytes=1KiB", "--num-gpus", 2, "--check"), "--check has no effect"),
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
        (("--algorithms",), "--algorithms has no effect: --num-gpus measures collectives"),
    ],
)
def test_wrong_options_start_no_rank(perfmodel, monkeypatch, options, said):
    monkeypatch.setattr("perfmodel.kernels.distributed.launch.launch", lambda *_: pytest.fail("a rank was started"))
    ran = perfmodel("bench", "all_reduce", "bytes=1KiB", "--num-gpus", "2", "--device", "cpu", *options)
    assert ran.code == 2
    assert ran.err.count("\n") == 1
    assert said in ran.err


class AloneInAGroup:
    """Stands for the group on rank 0; the other rank says the same."""

    rank, size, backend = 0, 2, "gloo"

    def gather(self, fact: object) -> list[object]:
        return [fact] * self.size


def session_of(request):
    from perfmodel.cli._bench_ranks import _session
    from perfmodel.kernels.device import open_device

    return _session(request, AloneInAGroup(), open_device("cpu"))


@pytest.fixture
def request_of(tmp_path: Path):
    from perfmodel.cli._bench_ranks import RanksRequest
    from perfmodel.cli._output import Destination

    destination = Destination.of("bench", None, str(tmp_path / "r.json"))

    def make(*, seed: int, resume: bool) -> RanksRequest:
        words = ("all_reduce", "bytes=1KiB/2KiB")
        return RanksRequest(
            words, 2, "cpu", (), (None, None, None), seed, False, 60.0, resume, False, destination
        )  # fmt: skip

    return make


def test_a_link_is_measured_in_one_line_and_not_again_to_resume(request_of, monkeypatch, capsys) -> None:
    from perfmodel.core.report import report
    from perfmodel.errors import UsageError
    from perfmodel.measure.benchmark.rows import Outcome, build_row
    from perfmodel.measure.collectives import links
    from perfmodel.records.schema import Status

    monkeypatch.setattr(links, "probe", lambda *_: links.AlphaBeta(1e-4, 1e9, 2e9, 0.25))
    session = session_of(request_of(seed=0, resume=False))
    line = "(100 us a step, the shorter one of all_reduce and send_recv; 1 GB/s, 25 % off its messages)"
    assert line in capsys.readouterr().err
    row = build_row(session.jobs[0], Outcome(Status.SKIPPED, "for the test"), session.machine, session.settings)
    request_of(seed=0, resume=False).destination.write(report(session.record([row])), quiet=True)

    monkeypatch.setattr(links, "probe", lambda *_: pytest.fail("the link was measured"))
    with pytest.raises(UsageError, match="seed 0 then, 1 now"):
        session_of(request_of(seed=1, resume=True))
    resumed = session_of(request_of(seed=0, resume=True))
    assert (len(resumed.before), len(resumed.jobs)) == (1, 1)
    assert resumed.facts["spec"] == session.facts["spec"]
    assert resumed.machine.sustained_links == session.machine.sustained_links


def test_a_calibration_of_links_says_nothing_of_the_rough_link_before_it(request_of, monkeypatch, capsys) -> None:
    """The figures of the fit to all messages follow, and would contradict it."""
    from perfmodel.measure.collectives import links

    monkeypatch.setattr(links, "probe", lambda *_: links.AlphaBeta(1e-4, 1e9, 2e9, 0.25))
    session = session_of(dataclasses.replace(request_of(seed=0, resume=False), quiet=True))
    assert "no link between ranks" not in capsys.readouterr().err
    assert session.machine.sustained_links["processes"] == 1e9


def test_what_a_rank_raised_is_a_sentence() -> None:
    from types import SimpleNamespace

    from perfmodel.kernels.distributed.launch import _reason

    raised = {"message": "ValueError: 3 is odd", "extraInfo": {"py_callstack": "Traceback ...", "timestamp": "1"}}
    assert _reason(SimpleNamespace(exitcode=1, message=raised)) == "ValueError: 3 is odd"


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


@pytest.mark.slow
@pytest.mark.waiting
def test_ctrl_c_says_how_many_rows_are_kept(spec: Path, tmp_path: Path) -> None:
    path = tmp_path / "r.json"
    ran = started(*bench(spec, "all_reduce", "bytes=1KiB..1GiB", "--time-limit", 1, "-o", path))
    try:
        until = time.monotonic() + 90
        while not path.exists() and time.monotonic() < until:
            time.sleep(0.05)
        os.killpg(ran.pid, signal.SIGINT)
        _, err = ran.communicate(timeout=60)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(ran.pid, signal.SIGKILL)
    assert ran.returncode == 130
    rows = len(json.loads(path.read_text())["rows"])
    assert 0 < rows < 21
    assert f"{rows} of 21 rows are measured and kept in {path}; --resume measures the others" in err


def test_ctrl_c_says_how_far_a_calibration_of_links_came(in_this_process: Program, spec: Path, tmp_path, monkeypatch):
    from perfmodel.kernels.distributed import launch

    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(launch, "launch", interrupted)
    made = tmp_path / "made.toml"
    words = ("calibrate", "--links", "--num-gpus", 2, "--device", "cpu", "--on", spec, "-o", made)
    code, out, err = in_this_process(*words)
    assert (code, out) == (130, ""), err
    assert "0 of 108 messages were measured" in err
    assert not made.exists()


def test_ranks_on_several_hosts_are_an_exchange_between_nodes() -> None:
    import perfmodel as pm
    from perfmodel.cli._bench_ranks import placed
    from perfmodel.errors import UsageError

    op, h100 = pm.AllReduce(bytes=1024, num_gpus=16), pm.hardware("h100")
    assert [one.params().get("nodes") for one in placed([op], h100, 2)] == [2]
    assert [one.params().get("nodes") for one in placed([op], h100, 1)] == [None]
    assert [one.params().get("nodes") for one in placed([op], pm.hardware("gb200"), 4)] == [None]  # NVLink joins them
    l40s = pm.hardware("l40s")  # which does not say how many share a host
    assert [one.params().get("nodes") for one in placed([op, op.changed(num_gpus=8)], l40s, 1)] == [1, None]
    assert placed([op.changed(nodes=2)], h100, 2)[0].params()["nodes"] == 2
    with pytest.raises(UsageError, match=r"nodes=4, and the ranks are on 2 hosts"):
        placed([op.changed(nodes=4)], h100, 2)
    with pytest.raises(UsageError, match=r"nodes=2, and the ranks are on 1 host\b"):
        placed([op.changed(nodes=2)], h100, 1)
