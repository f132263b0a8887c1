"""The command `monitor`: live readings of GPUs, host and a process, with findings."""

from __future__ import annotations

import contextlib
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Annotated, Any

import typer

from perfmodel.cli._idle import Idle, refuse_idle
from perfmodel.cli._options import FormatOption, WideOption, option, seconds_option
from perfmodel.cli._output import INTERRUPTED, Destination, check_writable, context, status
from perfmodel.errors import UsageError

if TYPE_CHECKING:
    from perfmodel.measure.monitor.session import Session
    from perfmodel.measure.monitor.sources import ProcessSource

#: number of the stream for messages
_STDERR = 2


def command(
    ctx: typer.Context,
    program: Annotated[
        list[str] | None,
        typer.Argument(metavar="[-- COMMAND...]", help="Command to run and watch; its exit code is returned."),
    ] = None,
    pid: Annotated[
        int | None,
        option("--pid", "Process to watch, with its children.", "PID", min=1),
    ] = None,
    interval: Annotated[
        float, seconds_option("--interval", "Time between two readings [s], or 500ms.", show_default=True)
    ] = 1.0,
    duration: Annotated[
        float | None,
        seconds_option("--duration", "Stop after this long [s], or 10min."),
    ] = None,
    record: Annotated[
        str | None,
        option("--record", "Append the readings to FILE (.jsonl); it is rotated.", "FILE"),
    ] = None,
    prometheus: Annotated[
        str | None,
        option("--prometheus", "Serve the readings: 127.0.0.1:9400.", "ADDRESS"),
    ] = None,
    read: Annotated[
        str | None,
        option("--read", "Report a record instead of watching.", "FILE"),
    ] = None,
    format_: FormatOption = None,
    output: Annotated[
        str | None,
        typer.Option("--output", "-o", metavar="FILE", help="Write the summary to FILE.", show_default=False),
    ] = None,
    wide: WideOption = False,
) -> int:
    """Watch GPUs, host and a process, and say what is wrong: leaks, low use, throttling, a host-bound or stalled job.

    On a terminal a live table is shown; at the end comes a summary with the findings.

    Example: perfmodel monitor --record run.jsonl -- python train.py

    Example: perfmodel monitor --pid 1234 --duration 60 --format json
    """
    destination = Destination.of("monitor", format_, output, wide=wide)
    watching = ("program", "pid", "interval", "duration", "record", "prometheus")
    refuse_idle(ctx, [Idle(read is not None, watching, "--read reports a record, and nothing is watched")])
    if read is not None:
        _summary(_read(read), destination, str(read))
        return 0
    if program and pid is not None:
        raise UsageError("--pid and a command exclude each other.", remedy="Give one of them.")
    if not interval > 0 or (duration is not None and not duration > 0):
        raise UsageError("an interval or duration is not above 0 s.", remedy="Give --interval 1 --duration 60, say.")
    if record is not None:
        from perfmodel.measure.monitor.record import is_monitored

        check_writable(record, ".jsonl", may_replace=is_monitored)  # which is continued
    return _watch(program or [], pid, (interval, duration), record, prometheus, destination)


def _watch(
    program: list[str],
    pid: int | None,
    times: tuple[float, float | None],
    record: str | None,
    prometheus: str | None,
    destination: Destination,
) -> int:
    from perfmodel.measure.monitor.prometheus import Exporter
    from perfmodel.measure.monitor.record import Recorder
    from perfmodel.measure.monitor.session import Session, sources_of
    from perfmodel.measure.monitor.sources import ProcessSource, Readings

    with contextlib.ExitStack() as held:
        exporter = held.enter_context(contextlib.closing(Exporter(prometheus))) if prometheus else None
        with contextlib.ExitStack() as recording:
            recorder = recording.enter_context(Recorder(record)) if record is not None else None
            child = _started(program) if program else None
            held.callback(_code, child)  # no process is left behind an error
            watched = child.pid if child else pid
            sources = sources_of(watched)  # without a process, since the monitor's own says nothing about a job
            ends = _ends(child, next((source for source in sources if isinstance(source, ProcessSource)), None))
            session = Session(Readings(sources), recorder)
            interrupted = True
            with contextlib.suppress(KeyboardInterrupt), _screen() as show:
                _loop(session, ends, times, show, exporter)
                interrupted = False
        _summary(session, destination, " ".join(program) or f"process {watched}" if watched else "this machine")
        # where nothing else ends it, Ctrl-C is the end that was meant
        has_end = pid is not None or times[1] is not None
        return INTERRUPTED if interrupted and has_end and child is None else _code(child)


def _started(program: list[str]) -> subprocess.Popen[bytes]:
    """Start the command; its output goes to stderr, so that stdout holds the summary alone."""
    try:
        return subprocess.Popen(program, stdout=_STDERR)  # noqa: S603 -- the user's own command
    except OSError as error:
        raise UsageError(
            f"cannot start {program[0]!r}: {error.strerror}.", place="COMMAND", remedy="Is it installed?"
        ) from None


def _ends(child: subprocess.Popen[bytes] | None, source: ProcessSource | None) -> Callable[[], bool]:
    """Return what says that there is nothing more to watch."""
    if child is not None:
        return lambda: child.poll() is not None
    return (lambda: not source.is_running) if source is not None else (lambda: False)


def _code(child: subprocess.Popen[bytes] | None) -> int:
    """Return the command's exit code as a shell does: 128 and the signal for one that was killed; end it if it runs."""
    if child is None:
        return 0
    if child.poll() is None:
        child.terminate()
    code = child.wait()
    return code if code >= 0 else 128 - code


def _loop(
    session: Session,
    ends: Callable[[], bool],
    times: tuple[float, float | None],
    show: Callable[[Session], None],
    exporter: Any,
) -> None:
    """Take readings until the work ends or the time is over."""
    interval, duration = times
    begin = time.monotonic()
    number = 0
    while True:
        for finding in session.take():
            status(f"finding: {finding}")
        if exporter is not None:
            exporter.show(session.latest)
        show(session)
        number += 1
        while (left := begin + number * interval - time.monotonic()) > 0 and not ends():
            time.sleep(min(left, 0.1))
        if ends() or (duration is not None and time.monotonic() - begin >= duration):
            return


@contextlib.contextmanager
def _screen() -> Iterator[Callable[[Session], None]]:
    """Yield what shows a session: a live table on a terminal, nothing elsewhere."""
    if not sys.stderr.isatty():
        yield lambda session: None
        return
    from rich.console import Console
    from rich.live import Live
    from rich.text import Text

    from perfmodel.measure.monitor.report import live_text

    console = Console(stderr=True)
    # drawn when there is something new, not at a rate of its own, which would cost more than the readings
    with Live(console=console, auto_refresh=False, transient=True) as live:

        def show(session: Session) -> None:
            text = live_text(session.series, session.findings, console.width)
            live.update(Text(text, no_wrap=True, overflow="crop"), refresh=True)

        yield show


def _read(path: str) -> Any:
    """Return the session of a record."""
    from perfmodel.measure.monitor.record import read_series
    from perfmodel.measure.monitor.session import Session
    from perfmodel.measure.monitor.sources import Readings

    session = Session(Readings([]))
    session.series = read_series(path)
    return session


def _summary(session: Session, destination: Destination, what: str) -> None:
    from perfmodel.measure.monitor.findings import find
    from perfmodel.measure.monitor.report import monitor_report

    destination.write(monitor_report(session.series, find(session.series), context=dict(context(watched=what))))
