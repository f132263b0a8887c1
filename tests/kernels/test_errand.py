"""Work that waits for ever: the thread that asked for it gets an error in time, and the process can end."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator

import pytest

from perfmodel.kernels.distributed import errand
from perfmodel.kernels.distributed.errand import Errands, is_stuck


@pytest.fixture
def for_ever() -> Iterator[Callable[[], object]]:
    """Return work that does not end before the test, like a wait for a kernel whose partner is gone."""
    released = threading.Event()
    yield released.wait
    released.set()
    while is_stuck():
        time.sleep(0.01)


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(errand, "_LOOK_S", 0.01)


def fine() -> str:
    return ""


def test_results_and_errors_of_the_work_are_those_of_the_call() -> None:
    errands = Errands(10.0, fine)
    assert errands.run(lambda: 3) == 3
    with pytest.raises(ZeroDivisionError):
        errands.run(lambda: 1 // 0)
    assert not is_stuck()


def test_work_without_an_end_times_out_and_is_left_behind(for_ever: Callable[[], object]) -> None:
    begin = time.monotonic()
    with pytest.raises(RuntimeError, match=r"timed out after 0\.2 s"):
        Errands(0.2, fine).run(for_ever)
    assert 0.2 <= time.monotonic() - begin < 5.0
    assert is_stuck()


@pytest.mark.waiting
def test_work_that_goes_on_may_last_longer_than_the_limit() -> None:
    errands = Errands(0.5, fine)

    def steps() -> str:
        for _ in range(4):
            time.sleep(0.2)
            errands.go_on()
        return "done"

    assert errands.run(steps) == "done"


def test_a_failure_ends_the_wait_before_the_limit(for_ever: Callable[[], object]) -> None:
    begin = time.monotonic()
    with pytest.raises(RuntimeError, match="NCCL reports COMM_ERROR"):
        Errands(60.0, lambda: "NCCL reports COMM_ERROR").run(for_ever)
    assert time.monotonic() - begin < 5.0


STUCK_AT_EXIT = """
import atexit, sys, threading
from perfmodel.cli import app
from perfmodel.errors import UnavailableError
from perfmodel.kernels.distributed.errand import Errands

def run(arguments):
    atexit.register(threading.Event().wait)  # like the end of CUDA, which waits for its kernels
    try:
        Errands(0.1, str).run(threading.Event().wait)
    except RuntimeError as error:
        print(error)
        return app._explain(UnavailableError("rank 1 did not answer."), arguments)

app.run = run
app.main()
"""


def test_a_program_with_a_stuck_thread_ends_with_its_message_and_code() -> None:
    ran = subprocess.run([sys.executable, "-c", STUCK_AT_EXIT], capture_output=True, text=True, timeout=60, check=False)
    assert (ran.returncode, ran.stderr) == (4, "perfmodel: rank 1 did not answer.\n")
    assert ran.stdout == "the exchange timed out after 0.1 s\n"
