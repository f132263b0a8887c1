"""Cuts the text of a trace between events, a block at a time, in one buffer that is used again and again.

New memory has to be given by the kernel page by page, which takes longer than decoding what is read into it. So a block
is read into the same bytes as the one before, and is decoded where it stands.
"""

from __future__ import annotations

import contextlib
import re
from collections import Counter
from io import BufferedIOBase

from perfmodel.formats.torch_trace.events import NOT_JSON, Event, decode_events, has_nan, without_nan

#: unpacked bytes that are decoded at a time; of 0.5 to 16 MB, 2 and 4 MB took the least time (traces of 50 MB and 1 GB)
BLOCK_BYTES = 4_000_000
_BETWEEN = re.compile(rb"\}\s*(,)\s*\{")
#: how far from the end of a block a boundary between two events is searched, and how many commas are tried
_TAIL_BYTES, _ATTEMPTS = 65536, 64


class Blocks:
    """The text of a list of events, as a stream gives it.

    Parameters
    ----------
    stream : what is left of the file, unpacked.
    begun : text of the list, without its bracket, that was read from the stream already.
    skipped : reason -> number of skipped events.

    Attributes
    ----------
    read_bytes : what came from the stream so far, with what was begun [B].
    """

    def __init__(self, stream: BufferedIOBase, begun: bytes, skipped: Counter[str]) -> None:
        self._stream, self._skipped = stream, skipped
        self._buffer = bytearray(b"[" + begun)
        # the text that is not decoded yet begins after a bracket, or after the comma that was one for the last block
        self._begin, self._end = 1, 1 + len(begun)
        self.read_bytes = len(begun)

    def __len__(self) -> int:
        return self._end - self._begin

    @property
    def rest(self) -> bytes:
        """The text that is not decoded yet."""
        return bytes(self._buffer[self._begin : self._end])

    def fill(self) -> bool:
        """Read until there is a block to decode; return False when the stream has ended."""
        # only now, since the events of the last block may be in use until then
        self._buffer[1 : 1 + len(self)] = self._buffer[self._begin : self._end]
        self._begin, self._end = 1, 1 + len(self)
        # twice as much where no event ended in what there is
        wanted = max(BLOCK_BYTES, 2 * len(self)) + 1
        if len(self._buffer) < wanted:
            self._buffer = self._buffer + bytes(wanted - len(self._buffer))
        view = memoryview(self._buffer)
        while self._end < wanted:
            read = self._stream.readinto(view[self._end : wanted])
            if not read:
                return False
            self._end += read
            self.read_bytes += read
        return True

    def cut(self) -> list[Event]:
        """Decode the complete events at the start of the text and drop them from it; return none if none is found.

        What is not decoded in the events, such as shapes, stands in the buffer: it is lost when the next block is read.

        A comma between braces may be inside an event, or inside a name. But then the text before it has an open brace
        or quote and is not a list, so the last comma before which everything decodes is between two events.
        """
        searched = _BETWEEN.finditer(self._buffer, max(self._begin, self._end - _TAIL_BYTES), self._end)
        commas = [match.start(1) for match in searched][-_ATTEMPTS:]
        with_nan = True
        for comma in reversed(commas):
            events = self._decoded(comma, with_nan)
            if events is None and comma == commas[-1]:
                # a search takes longer than decoding: damaged text is searched once
                with_nan = has_nan(self._buffer, comma)
            if events is not None:
                self._begin = comma + 1
                return events
        return []

    def _decoded(self, comma: int, with_nan: bool) -> list[Event] | None:
        """Return the events before a comma, or None if the text there, which may have NaN in it, is not a list."""
        self._buffer[comma] = ord("]")
        text = memoryview(self._buffer)[: comma + 1]
        with contextlib.suppress(*NOT_JSON):
            return decode_events(text, self._skipped)
        cleaned = without_nan(bytes(text)) if with_nan else None
        if cleaned is not None:
            with contextlib.suppress(*NOT_JSON):
                return decode_events(cleaned, self._skipped)
        self._buffer[comma] = ord(",")
        return None
