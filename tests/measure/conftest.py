"""A device whose clock is scripted, for what no real clock shows twice."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pytest


class ScriptedDevice:
    """A fake device: intervals last what the script says, and every call is noted in ``log``."""

    kind = "cpu"
    name = "scripted device"
    uuid = ""
    cache_bytes = 1e6

    def __init__(self, times_s: Iterable[float] = (1e-3,), free_bytes: float = 1e12) -> None:
        self.times_s = itertools.cycle(times_s)
        self.free_bytes = free_bytes
        self.log: list[str] = []

    def synchronize(self) -> None:
        self.log.append("synchronize")

    def stopwatch(self) -> ScriptedStopwatch:
        return ScriptedStopwatch(self)

    def flush_cache(self) -> None:
        self.log.append("flush")

    def hold(self) -> None:
        self.log.append("hold")

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

    def elapsed_s(self) -> float:
        return next(self.device.times_s)


@pytest.fixture
def scripted() -> Callable[..., ScriptedDevice]:
    """Make a `ScriptedDevice`: ``scripted([1e-3, 2e-3], free_bytes=...)``."""
    return ScriptedDevice
