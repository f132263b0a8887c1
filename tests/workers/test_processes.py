"""Processes of this machine that end in the middle of a result, or while they start: nobody waits for ever."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from perfmodel.workers import processes

#: far more than a run needs, and less than for ever [s]
LIMIT_S = 120

#: A worker that is stuck in the middle of sending a result: who receives is held up by a callback, so that the pipe
#: fills, until a worker is gone. Then what is in the pipe is received, and the rest never comes.
SENDING = """
import multiprocessing, os, signal, sys, threading, time
from perfmodel.workers import executor, mapped

def quick(item):
    return item

def large(item):
    if item:
        time.sleep(1000)
    open(os.environ["SENDS"], "w").write(str(os.getpid()))
    return bytes(50_000_000)

def full(reader):
    while not reader.poll(0.01):
        pass
    time.sleep(0.2)  # the pipe holds 64 KiB of the 50 MB

def main(how):
    gone = threading.Event()
    with executor(2) as pool:
        first = pool.submit(quick, 0)
        first.add_done_callback(lambda _: gone.wait())
        waited = [pool.submit(large, item) for item in (0, 1)]
        while not os.path.exists(os.environ["SENDS"]) or not open(os.environ["SENDS"]).read():
            time.sleep(0.01)
        full(pool._result_queue._reader)
        sender = int(open(os.environ["SENDS"]).read())
        process = next(one for one in multiprocessing.active_children() if one.pid == sender)
        threading.Thread(target=lambda: (process.join(), gone.set()), daemon=True).start()
        if how == "ctrl-c":
            raise KeyboardInterrupt
        os.kill(sender, signal.SIGKILL)
        list(map(lambda future: future.result(), waited))

if __name__ == "__main__":
    try:
        main(sys.argv[1])
    except BaseException as error:
        print(type(error).__name__)
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="fills a pipe of Linux")
@pytest.mark.parametrize(("how", "raised"), [("ctrl-c", "KeyboardInterrupt"), ("kill", "BrokenProcessPool")])
def test_a_result_that_is_half_sent_holds_nobody_up(tmp_path: Path, how: str, raised: str) -> None:
    script = tmp_path / "sending.py"
    script.write_text(SENDING)
    ran = subprocess.run(
        [sys.executable, str(script), how], capture_output=True, text=True, check=False, timeout=LIMIT_S,
        env={**os.environ, "SENDS": str(tmp_path / "sends")},
    )  # fmt: skip
    assert (ran.stdout, ran.stderr, ran.returncode) == (f"{raised}\n", "", 0)


STARTING = """
import os, signal
from perfmodel.workers import executor, mapped
if __name__ == "__main__":
    try:
        with executor(2) as pool:
            pool.submit(os.getpid)
            os.killpg(0, getattr(signal, os.environ["SIGNAL"]))  # the worker has just begun to start
            list(mapped(abs, range(4), pool))
            print("done")
    except KeyboardInterrupt:
        print("KeyboardInterrupt")
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="sends a signal to a process group")
@pytest.mark.parametrize(("name", "printed"), [("SIGINT", "KeyboardInterrupt\n"), ("SIGTERM", "done\n")])
def test_a_signal_to_the_group_is_left_to_the_process_that_asks(tmp_path: Path, name: str, printed: str) -> None:
    script = tmp_path / "starting.py"
    ignored = "signal.signal(signal.SIGTERM, lambda *_: None)"
    script.write_text(STARTING.replace("    try:\n", f"    {ignored}\n    try:\n"))
    ran = subprocess.run(
        [sys.executable, str(script)], capture_output=True, text=True, check=False, timeout=LIMIT_S,
        env={**os.environ, "SIGNAL": name}, start_new_session=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # a background job ignores it
    )  # fmt: skip
    assert (ran.stdout, ran.stderr) == (printed, "")


def test_a_signal_while_a_process_starts_comes_when_it_has_started() -> None:
    started: list[str] = []

    def start() -> None:
        with processes._undisturbed():
            signal.raise_signal(signal.SIGINT)
            started.append("all of it")

    with pytest.raises(KeyboardInterrupt):
        start()
    assert started == ["all of it"]
    threads: list[bool] = []

    def elsewhere() -> None:
        with processes._undisturbed():  # no other thread can set handlers
            threads.append(True)

    thread = threading.Thread(target=elsewhere)
    thread.start()
    thread.join()
    assert threads == [True]


#: a process that says whether Ctrl-C is blocked where it starts, and is the first that a program starts
FIRST = """
import multiprocessing, signal
from {module} import {block} as block

def say():
    print(signal.SIGINT in signal.pthread_sigmask(signal.SIG_BLOCK, []), flush=True)

if __name__ == "__main__":
    with block():
        process = multiprocessing.get_context("spawn").Process(target=say)
        process.start()
    process.join()
    print(signal.SIGINT in signal.pthread_sigmask(signal.SIG_BLOCK, []), flush=True)
"""


@pytest.mark.skipif(not hasattr(signal, "pthread_sigmask"), reason="no masks of signals here")
@pytest.mark.parametrize(
    ("module", "block"),
    [
        ("perfmodel.workers.processes", "_undisturbed"),
        ("perfmodel.kernels.distributed.launch", "_ranks_start_uninterrupted"),
    ],
)
def test_the_first_process_starts_with_ctrl_c_blocked(tmp_path: Path, module: str, block: str) -> None:
    """Python's resource tracker, which starts with the first one, unblocks it; the process then prints a traceback."""
    script = tmp_path / "first.py"
    script.write_text(FIRST.format(module=module, block=block))
    ran = subprocess.run([sys.executable, script], capture_output=True, text=True, check=True)
    assert ran.stdout.split() == ["True", "False"]
