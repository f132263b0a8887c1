"""A monitor that runs beside other work: in a thread, or step by step of a command."""

from __future__ import annotations

import os
import threading
import time
import warnings
from collections.abc import Callable, Iterable
from pathlib import Path
from types import TracebackType
from typing import Any

from perfmodel.core.report import Reportable
from perfmodel.errors import UsageError
from perfmodel.measure.monitor.expectation import Expectation
from perfmodel.measure.monitor.findings import LEAK, Finding, find, slow_steps
from perfmodel.measure.monitor.gpu import gpu_source
from perfmodel.measure.monitor.record import Recorder
from perfmodel.measure.monitor.series import Series
from perfmodel.measure.monitor.sources import HostSource, ProcessSource, Readings, Sample, Source

#: findings are looked for this often [s]: it takes longer than a reading
FIND_EVERY_S = 10.0


class Session:
    """Readings, what is wrong in them, and their record.

    Parameters
    ----------
    readings : of all sources.
    record : the file that they are appended to, opened by the caller; None for none.
    """

    def __init__(self, readings: Readings, record: Recorder | None = None) -> None:
        self.series = Series()
        self.findings: list[Finding] = []
        self.latest: list[Sample] = []
        self._readings, self._record = readings, record
        self._lock = threading.Lock()  # a training loop adds its steps while a thread takes readings
        self._found_at_s = 0.0
        self._seen: set[tuple[str, str]] = set()

    def take(self) -> list[Finding]:
        """Take the readings of now; return the findings that are new."""
        now, samples = self._readings.read()
        self.latest = samples
        with self._lock:
            self.series.add(now, samples)
            fresh = self._look(now)
            if self._record is not None:
                self._record.write(now, samples, fresh)
        return fresh

    def add(self, samples: list[Sample]) -> None:
        """Add readings of the caller, as tokens a second."""
        now = time.time()
        with self._lock:
            self.series.add(now, samples)
            if self._record is not None:
                self._record.write(now, samples)

    def found(self, look: Callable[[Series], Iterable[Finding]] = find) -> list[Finding]:
        """Return what is wrong in the readings so far, while no other thread adds any."""
        with self._lock:
            return list(look(self.series))

    def _look(self, now: float) -> list[Finding]:
        """Return what is wrong now and was not before; a finding may come back after it was gone.

        A leak counts from the second look in a row on: one look of many finds a trend in noise.
        """
        if now - self._found_at_s < FIND_EVERY_S:
            return []
        self._found_at_s = now
        before = {(one.kind, one.of) for one in self.findings}
        found = find(self.series)
        self.findings = [one for one in found if one.kind != LEAK or (one.kind, one.of) in self._seen]
        self._seen = {(one.kind, one.of) for one in found}
        return [one for one in self.findings if (one.kind, one.of) not in before]


class Monitor(Reportable):
    """Watches GPUs, host and this process from a thread: ``with pm.monitor() as m:``.

    Attributes
    ----------
    session : the readings and findings so far.
    """

    def __init__(self, session: Session, interval_s: float, recorder: Recorder | None, expected: Any = None) -> None:
        self.session = session
        self._interval_s, self._recorder, self._expected = interval_s, recorder, Expectation.of(expected)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._work, name="perfmodel monitor", daemon=True)
        self._last_s: float | None = None
        self._is_slow = False

    def __enter__(self) -> Monitor:
        if self._recorder is not None:
            self._recorder.__enter__()
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        self._thread.join()
        if self._recorder is not None:
            self._recorder.__exit__(kind, error, trace)

    @property
    def findings(self) -> list[Finding]:
        """What is wrong now."""
        return self.session.found()

    def step(
        self, tokens: float | None = None, flop: float | None = None, peak_flop_per_s: float | None = None
    ) -> dict[str, float]:
        """Log the end of a training step; return what is known of it, by metric.

        That is its time, tokens a second and MFU, and with an expected step what these should be, and how fast it is
        against that (1 is as expected). A warning comes when the median of the last ten steps, the first five left
        out, is above the slow end of the expected interval; and again after it was below.

        Parameters
        ----------
        tokens : of the whole step; those of the expected step by default.
        flop : of the model in this step, and ``peak_flop_per_s`` of all GPUs, for the MFU; by default likewise.
        """
        now = time.perf_counter()
        before, self._last_s = self._last_s, now
        if before is None:
            return {}
        values = self._expected.judged(now - before, tokens, flop, peak_flop_per_s)
        self.session.add([Sample(name, "training", value) for name, value in values.items()])
        slow = self.session.found(slow_steps) if self._expected.high_s else []
        if slow and not self._is_slow:
            warnings.warn(f"{slow[0].evidence} {slow[0].advice}", stacklevel=2)
        self._is_slow = bool(slow)
        return values

    def _work(self) -> None:
        while not self._stop.is_set():
            self.session.take()
            self._stop.wait(self._interval_s)


def sources_of(pid: int | None) -> list[Source]:
    """Return the sources of this machine: its GPUs if any, the host, and a process tree unless ``pid`` is None."""
    gpus = gpu_source()
    first: list[Source] = [gpus] if gpus is not None else []
    return [*first, HostSource(), *([] if pid is None else [ProcessSource(pid)])]


def monitor(
    *,
    interval_s: float = 1.0,
    pid: int | None = None,
    record: str | Path | None = None,
    expected: Any = None,
    clock: Callable[[], float] = time.time,
) -> Monitor:
    """Return a monitor of this machine's GPUs, its host and a process tree, to be used in a ``with`` block.

    Parameters
    ----------
    interval_s : time between two readings [s].
    pid : the process; this one by default.
    record : a JSON lines file that the readings are appended to.
    expected : a result of `perfmodel.train`, or anything with ``high_s``, against which `Monitor.step` judges steps.
    clock : of the readings [s since 1970].

    Raises
    ------
    UsageError
        When the interval is not above 0, or there is no such process.
    UnavailableError
        When psutil is not installed.
    """
    if not interval_s > 0:
        raise UsageError(f"{interval_s} s is no interval.", place="interval_s", remedy="Give 1, say.")
    recorder = Recorder(record) if record is not None else None
    return Monitor(
        Session(Readings(sources_of(os.getpid() if pid is None else pid), clock), recorder),
        interval_s,
        recorder,
        expected,
    )
