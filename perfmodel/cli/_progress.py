"""A progress bar with rate and time left, on stderr and only on a terminal."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator

#: time over which the rate is a mean: that of some pieces of work, of which one may take minutes [s]
_PERIOD_S = 600.0


@contextlib.contextmanager
def counted(total: int) -> Iterator[Callable[[int], None]]:
    """Yield a function that sets how many of ``total`` pieces of work are done."""
    if not sys.stderr.isatty():
        yield lambda done: None
        return
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TaskProgressColumn,
        TextColumn,
        TimeRemainingColumn,
    )

    rate = TextColumn("{task.fields[rate]}")
    columns = (BarColumn(), MofNCompleteColumn(), TaskProgressColumn(), rate, TimeRemainingColumn())
    console = Console(stderr=True)
    with Progress(*columns, console=console, transient=True, speed_estimate_period=_PERIOD_S) as bar:
        task = bar.add_task("", total=total, rate="")

        def advance(done: int) -> None:
            bar.update(task, completed=done)
            bar.update(task, rate=_rate(bar.tasks[task].speed))

        yield advance


def _rate(per_s: float | None) -> str:
    """Return how many pieces of work are done in a second, with an SI prefix; "" while that is not known.

    >>> _rate(41234.5), _rate(412.345), _rate(0.25), _rate(None)
    ('41.2 k/s', '412/s', '0.25/s', '')
    """
    from rich.filesize import pick_unit_and_suffix

    if not per_s:
        return ""
    unit, prefix = pick_unit_and_suffix(int(per_s), ["", " k", " M", " G"], 1000)
    number = per_s / unit
    return f"{number:.3g}{prefix}/s" if number < 100.0 else f"{number:.0f}{prefix}/s"
