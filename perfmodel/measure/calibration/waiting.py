"""How long the threads of this process had no CPU although they were ready: other work had it."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from pathlib import Path

#: the kernel's account of each thread: ns on a CPU, ns ready without one, turns (Documentation/scheduler/sched-stats)
_THREADS = Path("/proc/self/task")

#: thread -> the time that it ran, and that it was ready and waited [ns]
ThreadTimes = Mapping[str, tuple[int, int]]


def thread_times(folder: Path = _THREADS) -> ThreadTimes:
    """Return the times of the threads of this process since they began; empty where the system does not say."""
    times = {}
    with contextlib.suppress(OSError):
        for thread in folder.iterdir():
            with contextlib.suppress(OSError, ValueError):  # it has just ended, or the kernel keeps no account
                ran, waited, *_ = map(int, (thread / "schedstat").read_text().split())
                times[thread.name] = ran, waited
    return times


def share_waited(before: ThreadTimes, after: ThreadTimes) -> float:
    """Return the share of the time for which threads that were there before and after waited; 0 if it is unknown.

    >>> share_waited({"1": (0, 0)}, {"1": (3, 1), "2": (5, 5)})
    0.25
    """
    both = [(before[thread], after[thread]) for thread in before.keys() & after.keys()]
    ran, waited = (sum(late[part] - early[part] for early, late in both) for part in (0, 1))
    return waited / (ran + waited) if waited > 0 else 0.0
