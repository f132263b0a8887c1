"""Work on several processes: same results in the same order, and clear messages when something breaks."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future
from pathlib import Path
from typing import Any

import pytest

from perfmodel.errors import UnavailableError, UsageError
from perfmodel.workers import executor, mapped, streamed

ITEMS = [9, 1, 16, 4]


def slow_root(value: int) -> float:
    """Take longer for the first items, so that order is no accident."""
    time.sleep(0.002 * (20 - value))
    return value**0.5


def die(value: int) -> int:
    if value == 16:
        os.kill(os.getpid(), signal.SIGKILL)
    return value


def refuse(value: int) -> int:
    raise UsageError(f"{value} is refused.")


@pytest.mark.slow
def test_results_are_the_same_in_the_same_order_with_any_number_of_workers() -> None:
    done: list[int] = []
    expected = [3.0, 1.0, 4.0, 2.0]
    for workers in (1, 2):
        with executor(workers) as pool:
            assert (pool is None) == (workers == 1)
            assert list(mapped(slow_root, ITEMS, pool, done.append)) == expected
    assert done == [1, 2, 3, 4] * 2


@pytest.mark.slow
def test_a_stream_takes_items_as_results_are_asked_for() -> None:
    taken: list[int] = []

    def items() -> Iterator[int]:
        for value in ITEMS * 5:
            taken.append(value)
            yield value

    with executor(2) as pool:
        results = streamed(slow_root, items(), pool, ahead=3)
        assert next(results) == 3.0
        assert len(taken) == 3
        assert [3.0, *results] == [3.0, 1.0, 4.0, 2.0] * 5
        with pytest.raises(UnavailableError, match="that were done: 2"):
            list(streamed(die, ITEMS, pool, ahead=1))
    assert list(streamed(slow_root, iter(ITEMS), None, ahead=1)) == [3.0, 1.0, 4.0, 2.0]


class Interrupted(Executor):
    """Does all tasks but those of 16, which wait until Ctrl-C ends the work."""

    def submit(self, function: Callable[..., Any], /, *arguments: Any, **_: Any) -> Future[Any]:
        future: Future[Any] = Future()
        if arguments == (16,):
            future.set_exception(KeyboardInterrupt())
        else:
            future.set_result(function(*arguments))
        return future


def test_results_behind_one_that_is_not_done_are_kept_when_the_work_is_ended() -> None:
    kept: dict[int, float] = {}
    found: list[float] = []
    with pytest.raises(KeyboardInterrupt):
        found.extend(mapped(slow_root, ITEMS, Interrupted(), kept=kept))
    assert found == [3.0, 1.0]
    assert kept == {0: 3.0, 1: 1.0, 3: 2.0}
    alone: dict[int, float] = {}
    assert list(mapped(slow_root, ITEMS, None, kept=alone)) == list(alone.values()) == [3.0, 1.0, 4.0, 2.0]


class Beside(Executor):
    """Does a task, the oldest one, whenever the process that asks does one."""

    def __init__(self) -> None:
        self.tasks: deque[tuple[Future[int], int]] = deque()
        self.mine: list[int] = []

    def submit(self, function: Callable[..., Any], /, *arguments: Any, **_: Any) -> Future[Any]:
        future: Future[Any] = Future()
        if arguments:
            self.tasks.append((future, *arguments))
        else:  # it has started
            future.set_result(None)
        return future

    def here(self, value: int) -> int:
        """Do a task of the process that asks, and one of the other's."""
        self.mine.append(value)
        while self.tasks:
            future, other = self.tasks.popleft()
            if future.set_running_or_notify_cancel():
                future.set_result(other)
                break
        return value


def test_what_the_process_that_asks_has_done_is_asked_for_next() -> None:
    pool, asked = Beside(), []
    for value in streamed(abs, iter(range(400)), pool, ahead=8, here=pool.here):
        asked.append(value)
        assert sum(mine > value for mine in pool.mine) <= 1  # of what it has made, next to nothing waits
    assert asked == list(range(400))
    assert 190 <= len(pool.mine) <= 210


def whose(value: int) -> tuple[int, int]:
    """Return a value and the process that worked on it."""
    time.sleep(0.005)
    return value, os.getpid()


@pytest.mark.slow
@pytest.mark.waiting
def test_the_process_that_asks_works_while_others_start_and_while_it_would_wait() -> None:
    with executor(2, here=True) as pool:
        found = list(streamed(whose, range(200), pool, ahead=8, here=whose))
        assert [value for value, _ in found] == list(range(200))
        by = [process for _, process in found]
        assert set(by) > {os.getpid()}
        assert len(set(by)) == 2
        assert by[0] == os.getpid()
        assert list(streamed(whose, [], pool, ahead=8, here=whose)) == []
        with pytest.raises(UnavailableError, match="a worker died"):
            list(streamed(die, [16] * 99, pool, ahead=8, here=slow_root))


def slowly(value: int) -> tuple[int, int]:
    """Do what `whose` does, in twenty times its time."""
    time.sleep(0.1)
    return whose(value)


@pytest.mark.slow
def test_the_process_that_asks_takes_back_what_a_slow_one_has_not_begun() -> None:
    with executor(2, here=True) as pool:
        assert pool is not None
        pool.submit(os.getpid).result()
        found = list(streamed(slowly, range(40), pool, ahead=44, here=whose))
        assert [value for value, _ in found] == list(range(40))
        others = sum(process != os.getpid() for _, process in found)
        assert 1 <= others <= 12  # 20 times slower; two or three are on their way to it at any time


@pytest.mark.slow
def test_a_worker_that_dies_and_an_error_of_the_work_are_one_message() -> None:
    with pytest.raises(UnavailableError, match="a worker died"), executor(2) as pool:
        list(mapped(die, ITEMS, pool))
    with pytest.raises(UsageError, match="9 is refused"), executor(2) as pool:
        list(mapped(refuse, ITEMS, pool))


def test_impossible_numbers_and_addresses_are_refused() -> None:
    with pytest.raises(UsageError, match="0 workers"), executor(0):
        pass
    with pytest.raises(UsageError, match=r"1\.5 workers"), executor(1.5):  # type: ignore[arg-type]
        pass
    with pytest.raises(UsageError, match="no address"), executor(scheduler="localhost"):
        pass


def test_a_scheduler_that_is_not_there_is_one_message(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("distributed")
    from perfmodel.workers import cluster

    monkeypatch.setattr(cluster, "_CONNECT_S", 0.3)
    with pytest.raises(UnavailableError, match="no scheduler answers"), executor(scheduler="tcp://127.0.0.1:1"):
        pass


CLUSTER = """
import sys, warnings
warnings.simplefilter("ignore")
import distributed
from perfmodel.workers import executor, mapped
from tests_of_workers import slow_root
if __name__ == "__main__":
    with distributed.LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster:
        with executor(scheduler=cluster.scheduler_address) as pool:
            print(list(mapped(slow_root, [9, 1, 16, 4], pool)))
"""


@pytest.mark.slow
@pytest.mark.waiting
def test_a_cluster_gives_the_same_results(tmp_path: Path) -> None:
    pytest.importorskip("distributed")
    (tmp_path / "tests_of_workers.py").write_text(Path(__file__).read_text())
    (tmp_path / "cluster.py").write_text(CLUSTER)
    paths = os.pathsep.join([str(tmp_path), *filter(None, [os.environ.get("PYTHONPATH", "")])])
    ran = subprocess.run(
        [sys.executable, str(tmp_path / "cluster.py")], capture_output=True, text=True, check=False, timeout=100,
        env={**os.environ, "PYTHONPATH": paths}, cwd=tmp_path,
    )  # fmt: skip
    assert ran.stdout.strip() == "[3.0, 1.0, 4.0, 2.0]", ran.stderr


INTERRUPTED = """
import time
from perfmodel.workers import executor, mapped
def work(item):
    print("begun", flush=True)
    time.sleep(60)
if __name__ == "__main__":
    with executor(2) as pool:
        list(mapped(work, range(4), pool))
"""


def running(session: int) -> list[str]:
    """Return the processes of a session that have not ended; one that nobody waited for is a zombie, state Z."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            state = folder.joinpath("stat").read_text().rpartition(")")[2].split()[0]
            if os.getsid(int(folder.name)) == session and state != "Z":
                found.append(folder.joinpath("cmdline").read_text())
    return found


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="sends SIGINT to a process group")
def test_ctrl_c_leaves_no_process(tmp_path: Path) -> None:
    script = tmp_path / "interrupted.py"
    script.write_text(INTERRUPTED)
    ran = subprocess.Popen(
        [sys.executable, str(script)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        start_new_session=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # a background job ignores it
    )  # fmt: skip
    assert ran.stdout is not None
    assert ran.stdout.readline().startswith("begun")
    os.killpg(ran.pid, signal.SIGINT)
    ran.communicate(timeout=30)
    assert ran.returncode != 0
    waited = time.monotonic() + 5
    while running(ran.pid) and time.monotonic() < waited:
        time.sleep(0.05)
    assert running(ran.pid) == []
