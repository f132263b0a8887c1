"""A device whose clock is scripted, for what no real clock shows twice."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import pytest


class ScriptedDevice:
    """A fake device: intervals last what the script says, and every call is noted in ``log``.

    Parameters
    ----------
    times_s : the lengths of the intervals, in turn.
    free_bytes : its free memory.
    tick_s, has_graphs : as in `perfmodel.kernels.device.Device`; a graph is the calls, one after another.
    late : whether the host is late for each interval, in turn.
    """

    kind = "cpu"
    name = "scripted device"
    uuid = ""
    cache_bytes = 1e6
    warm_up_s = 0.0

    def __init__(
        self,
        times_s: Iterable[float] = (1e-3,),
        free_bytes: float = 1e12,
        *,
        tick_s: float = 0.0,
        has_graphs: bool = False,
        late: Iterable[bool] = (False,),
    ) -> None:
        self.times_s = itertools.cycle(times_s)
        self.late = itertools.cycle(late)
        self.free_bytes = free_bytes
        self.tick_s = tick_s
        self.has_graphs = has_graphs
        self.log: list[str] = []
        self.holds_s: list[float] = []

    def synchronize(self) -> None:
        self.log.append("synchronize")

    def stopwatch(self) -> ScriptedStopwatch:
        return ScriptedStopwatch(self)

    def flush_cache(self) -> None:
        self.log.append("flush")

    def hold(self, time_s: float = 1e-4) -> None:
        self.log.append("hold")
        self.holds_s.append(time_s)

    def capture(self, calls: Sequence[Callable[[], Any]], *, keep_outputs: bool) -> Callable[[], Any]:
        self.log.append("capture")
        captured = list(calls)
        return lambda: (self.log.append("replay"), [call() for call in captured])[1]

    def free_memory_bytes(self) -> float:
        return self.free_bytes

    def release_memory(self) -> None:
        self.log.append("release")

    def is_out_of_memory(self, error: BaseException) -> bool:
        return isinstance(error, MemoryError)

    @contextlib.contextmanager
    def precision(self, dtype: str) -> Iterator[None]:
        yield

    def facts(self) -> dict[str, Any]:
        return {"torch": "none", "threads": 1}


class ScriptedStopwatch:
    """The stopwatch of a `ScriptedDevice`."""

    def __init__(self, device: ScriptedDevice) -> None:
        self.device = device

    def start(self) -> None:
        self.device.log.append("start")

    def stop(self) -> None:
        self.device.log.append("stop")

    def has_begun(self) -> bool:
        return next(self.device.late)

    def elapsed_s(self) -> float:
        return next(self.device.times_s)


@pytest.fixture
def scripted() -> Callable[..., ScriptedDevice]:
    """Make a `ScriptedDevice`: ``scripted([1e-3, 2e-3], free_bytes=..., tick_s=..., late=...)``."""
    return ScriptedDevice
