"""Events in two parts, a begin (phase B) and an end (phase E), as one complete event.

The end belongs to the last open begin of its process and thread, which it need not name (Trace Event Format, duration
events). Profilers write complete events; converters and hand-made traces often write pairs.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable, Iterator
from typing import Generic, TypeVar

import msgspec

from perfmodel.formats.torch_trace.events import RAW_FIELDS, Event

COMPLETE, BEGIN, END = "X", "B", "E"
_Begun = TypeVar("_Begun")


class Open(Generic[_Begun]):
    """The events of each thread that have begun and not ended.

    >>> one = Open[str]()
    >>> for name in ("outer", "inner"):
    ...     one.begin(("process", 1), name)
    >>> one.end(("process", 1)), one.end(("process", 2)), len(one)
    ('inner', None, 1)
    """

    def __init__(self) -> None:
        self._stacks: defaultdict[Hashable, list[_Begun]] = defaultdict(list)

    def begin(self, thread: Hashable, event: _Begun) -> None:
        """Add an event that begins."""
        self._stacks[thread].append(event)

    def end(self, thread: Hashable) -> _Begun | None:
        """Return the last event of a thread that has begun, and drop it; None where none has."""
        stack = self._stacks[thread]
        return stack.pop() if stack else None

    def __len__(self) -> int:
        return sum(map(len, self._stacks.values()))

    def __iter__(self) -> Iterator[_Begun]:
        return (event for stack in self._stacks.values() for event in stack)


class Pairs:
    """Joins the parts of events, a piece of the trace after the other.

    Parameters
    ----------
    skipped : reason -> number of skipped events.
    """

    def __init__(self, skipped: Counter[str]) -> None:
        # `Open[Event]()` would take as long as 20 events
        self._open: Open[Event] = Open()
        self._skipped = skipped

    def __bool__(self) -> bool:
        return len(self._open) > 0

    def joined(self, events: Iterable[Event]) -> list[Event]:
        """Return the events of two parts that end in a piece of the trace, complete."""
        complete = []
        for event in events:
            thread = (event.pid, event.tid)
            if event.ph == BEGIN:
                self._open.begin(thread, event)
            elif event.ph == END and (start := self._open.end(thread)) is not None:
                complete.append(_complete(start, event))
            elif event.ph == END:
                self._skipped["end of an event (ph is E) without its begin"] += 1
        for event in self._open:  # shapes and the like stand in the text, which is lost with the next piece
            for name in RAW_FIELDS if event.args else ():
                setattr(event.args, name, getattr(event.args, name).copy())
        return complete

    def finish(self) -> None:
        """Count the events that did not end."""
        if self:
            self._skipped["begin of an event (ph is B) without its end"] += len(self._open)


def _complete(start: Event, end: Event) -> Event:
    """Return one event of two parts."""
    duration = None if start.ts is None or end.ts is None else end.ts - start.ts
    return msgspec.structs.replace(start, ph=COMPLETE, dur=duration, args=start.args or end.args)
