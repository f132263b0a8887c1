"""Results by shared memory: the same as by pipes, and no memory is left behind, however the work ends."""

from __future__ import annotations

import itertools
import os
import signal
import subprocess
import sys
import time
from multiprocessing import resource_tracker
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from perfmodel.workers import executor, slots, streamed

FOLDER = Path("/dev/shm")


def made(task: tuple[int, Any]) -> Any:
    """Return a few arrays, one of which no buffer of its own goes with, and one that never fits a slot."""
    value, slot = task
    many = np.arange(100_000.0) if value == 3 else np.zeros(0)
    found = {"value": value, "root": np.arange(50.0) ** 0.5 * value, "same": np.broadcast_to(value, 9), "many": many}
    return slots.written(found, slot)


@pytest.mark.slow
def test_arrays_by_shared_memory_are_those_that_were_sent() -> None:
    with executor(2) as pool, slots.slots(pool, 3, 1000) as places:
        tasks = list(itertools.islice(places, 7))
        assert len(set(tasks)) == 3
        sent = streamed(made, enumerate(tasks), pool, ahead=3)
        letters = []
        for value, letter in enumerate(sent):
            letters.append(isinstance(letter, slots.Letter))
            found = slots.read(letter)
            assert found["value"] == value
            assert np.array_equal(found["root"], np.arange(50.0) ** 0.5 * value)
            assert np.array_equal(found["same"], np.full(9, value))
            found["root"] += 1.0  # a copy, not the memory of the next result
        assert letters == [value != 3 for value in range(7)]
        assert tasks[0] is not None
        block = tasks[0].block
    assert not (FOLDER / block).exists()


def test_other_executors_and_a_full_machine_send_results_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    with slots.slots(None, 3, 1000) as places:
        assert list(itertools.islice(places, 5)) == [None] * 5
    with executor(2) as pool, monkeypatch.context() as patch:
        patch.setattr(slots, "_LEFT_FREE", 1e30)
        if FOLDER.exists():
            with slots.slots(pool, 3, 1000) as places:
                assert next(places) is None
    assert slots.read(made((2, None)))["value"] == 2


def test_parts_of_a_slot_follow_each_other_and_stay_inside() -> None:
    slot = slots.Slot("block", 100, 190)
    assert [slot.part(index, 40)[1:] for index in range(4)] == [(100, 140), (140, 180), (180, 190), (190, 190)]


ENDLESS = """
import itertools, os, time
from perfmodel.workers import executor, slots, streamed
def work(task):
    value, slot = task
    time.sleep(0.01)
    return slots.written(value, slot)
if __name__ == "__main__":
    with executor(2) as pool, slots.slots(pool, 2, 1000) as places:
        for sent in streamed(work, enumerate(places), pool, 2):
            if slots.read(sent) == 2:
                print(next(places).block, flush=True)
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="looks for processes and memory where Linux has them")
@pytest.mark.parametrize("sent", [signal.SIGKILL, signal.SIGINT, signal.SIGTERM])
def test_a_killed_process_leaves_neither_workers_nor_memory(sent: signal.Signals, tmp_path: Path) -> None:
    script = tmp_path / "endless.py"
    script.write_text(ENDLESS)
    ran = subprocess.Popen(
        [sys.executable, str(script)], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
        start_new_session=True, preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )  # fmt: skip
    assert ran.stdout is not None
    block = ran.stdout.readline().strip()
    assert block
    assert (FOLDER / block).exists()
    os.kill(ran.pid, sent)
    ran.communicate(timeout=30)
    waited = time.monotonic() + 10
    while ((FOLDER / block).exists() or _alive(ran.pid)) and time.monotonic() < waited:
        time.sleep(0.05)
    assert not (FOLDER / block).exists()
    assert not _alive(ran.pid)


def _alive(session: int) -> bool:
    """Return whether a process of a session runs."""
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            state = folder.joinpath("stat").read_text().rpartition(")")[2].split()[0]
            if os.getsid(int(folder.name)) == session and state != "Z":
                return True
        except OSError:
            continue
    return False


def test_who_attaches_to_a_block_leaves_it_to_the_process_that_made_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that does while the block is given back, on Ctrl-C, left it in the tracker, which complains at the end."""
    told: list[str] = []
    with executor(2) as pool, slots.block(pool, 1000) as whole:
        assert whole is not None
        monkeypatch.setattr(resource_tracker, "register", lambda name, kind: told.append(name))
        slots._attached.cache_clear()
        assert len(slots.content(whole)) == 1000
        assert resource_tracker.register("x", "shared_memory") is None, "the tracker's own function is back"
    assert told == ["x"]


def test_ctrl_c_while_a_block_is_made_leaves_none(monkeypatch: pytest.MonkeyPatch) -> None:
    made = []
    memory = slots._memory

    def interrupted(size_bytes: int) -> Any:
        found = memory(size_bytes)
        made.append(found)
        signal.raise_signal(signal.SIGINT)
        return found

    monkeypatch.setattr(slots, "_memory", interrupted)
    with executor(2) as pool, pytest.raises(KeyboardInterrupt), slots.block(pool, 1000):
        raise AssertionError("the signal was put off to before this")
    (block,) = made
    assert not (FOLDER / block.name).exists()
