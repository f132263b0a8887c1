"""Reads a trace file, block by block or, where that fails, whole."""

from __future__ import annotations

import contextlib
import gzip
import math
import os
import re
import struct
import zlib
from collections import Counter
from collections.abc import Iterator
from io import BufferedIOBase

from perfmodel import storage
from perfmodel.errors import InputFileError
from perfmodel.files import read_text
from perfmodel.formats.torch_trace.blocks import BLOCK_BYTES, Blocks
from perfmodel.formats.torch_trace.events import (
    Event,
    Header,
    decode_document,
    has_list,
    no_events,
    several_lists,
)
from perfmodel.storage import gzipped

#: bytes that are read first: the keys before the events take a few kB
_HEAD_BYTES = 65536
#: bytes of which not all are blank in a file with content
_FIRST_BYTES = 1024
#: events are a few kB, so text of this length without a boundary between two of them is damaged
_LONGEST_BYTES = 160_000_000
#: traces unpack to 11 to 26 times their size, and damage or malice to up to 1032 times, the most that deflate can do
_LARGEST_RATIO = 200
_OPENING = b'{"traceEvents":['
#: what a file without content may hold
_BLANK = b"\0 \t\r\n"
_START = re.compile(rb'"traceEvents"\s*:\s*\[')


class Source:
    """The events of one trace file.

    Parameters
    ----------
    path : the file, plain or gzip.
    limit : unpacked size above which it is never decoded at once [B].

    Attributes
    ----------
    header : the document's other keys; complete once all events are read.
    skipped : reason -> number of skipped events.
    """

    def __init__(self, path: str | os.PathLike[str], limit: int) -> None:
        self.path, self.place = storage.local(path), os.fspath(path)
        self.limit = limit
        self.header = Header()
        # most bytes that the file may unpack to, or infinity if it is not packed
        self._most_bytes = math.inf
        self.skipped: Counter[str] = Counter()

    def blocks(self) -> Iterator[list[Event]]:
        """Yield the events a block at a time, all at once where there is one; they are valid until the next one.

        Raises
        ------
        InputFileError
            As `whole`, and when what is around the events is not as the profiler writes it.
        """
        events = self._at_once(min(BLOCK_BYTES, self.limit))
        if events is not None:
            yield events
            return
        with _file_errors(self.place), self._open() as stream:
            yield from self._pieces(stream)

    def whole(self) -> list[Event] | None:
        """Return all events, decoded at once, or None if the file is too large for that.

        Raises
        ------
        InputFileError
            When the file cannot be read, is an incomplete gzip file, is not JSON, or has no events.
        """
        return self._at_once(self.limit)

    def _at_once(self, limit: int) -> list[Event] | None:
        """Return all events, or None if the file, unpacked, is larger than a limit [B]."""
        with _file_errors(self.place):
            data = self._whole(limit)
        if data is None:
            return None
        if not data[:_FIRST_BYTES].strip(_BLANK) and not data.strip(_BLANK):  # which copies all but the blanks
            raise _blank(data, self.place)
        self.header, events = decode_document(data, self.skipped, self.place)
        return events

    def _whole(self, limit: int) -> bytes | None:
        """Return all bytes, unpacked, or None if they are more than a limit."""
        size = os.stat(self.path).st_size
        if size > limit:
            return None
        # a buffer would hold the first block, and everything would be copied once more
        with open(self.path, "rb", buffering=0) as stream:
            packed = stream.read(2) == gzipped.MAGIC
            if packed and size >= 8:
                # RFC 1952: the last four bytes are the unpacked size modulo 2^32 of the last member
                stream.seek(-4, os.SEEK_END)
                if struct.unpack("<I", stream.read(4))[0] > limit:
                    return None
            stream.seek(0)
            data = stream.readall()
        return gzipped.unpacked(data, limit) if packed else data

    def _open(self) -> BufferedIOBase:
        with open(self.path, "rb") as stream:
            packed = stream.read(2) == gzipped.MAGIC
        if not packed:
            return open(self.path, "rb")
        self._most_bytes = max(self.limit, _LARGEST_RATIO * os.stat(self.path).st_size)
        return gzip.open(self.path, "rb")

    def _pieces(self, stream: BufferedIOBase) -> Iterator[list[Event]]:
        """Yield the events, decoded a block at a time."""
        blocks = Blocks(stream, self._to_first_event(stream), self.skipped)
        while blocks.fill():
            if blocks.read_bytes > self._most_bytes:
                raise InputFileError(
                    f"unpacks to over {_LARGEST_RATIO} times its size, which no trace does.",
                    place=self.place,
                    remedy="Export the trace again.",
                )
            events = blocks.cut()
            if events:
                yield events
                # not kept until the next block is read
                events.clear()
            elif len(blocks) > _LONGEST_BYTES:
                if has_list(blocks.rest):
                    raise several_lists(self.place)
                raise InputFileError("has an event that does not end.", place=self.place)
        # after the last event come the end of the list and a few keys
        opening = b"[" if isinstance(self.header, _Bare) else _OPENING
        tail, events = decode_document(opening + blocks.rest, self.skipped, self.place)
        for name in Header.__struct_fields__:
            setattr(self.header, name, getattr(self.header, name) or getattr(tail, name))
        yield events

    def _to_first_event(self, stream: BufferedIOBase) -> bytes:
        """Read the keys before the events, and return the start of the events."""
        data = stream.read(_HEAD_BYTES)
        if data[:64].lstrip(b"\xef\xbb\xbf \t\r\n").startswith(b"["):
            self.header = _Bare()
            return data[data.index(b"[") + 1 :]
        while (found := _START.search(data)) is None:
            block = stream.read(BLOCK_BYTES)
            if not block or len(data) > _LONGEST_BYTES:
                raise _blank(data, self.place) if not data.strip(b"\0 \t\r\n") else no_events(self.place)
            data += block
        self.header, _ = decode_document(data[: found.end()] + b"]}", self.skipped, self.place)
        return data[found.end() :]


class _Bare(Header):
    """The header of a trace that is only a list of events."""


def _blank(data: bytes, place: str) -> InputFileError:
    if b"\0" in data:
        return InputFileError("has nothing but NUL bytes.", place=place, remedy="Was the disk full? Export it again.")
    return InputFileError("the file is empty.", place=place, remedy="Is the path right?")


@contextlib.contextmanager
def _file_errors(place: str) -> Iterator[None]:
    """Turn the errors of reading a file into one message."""
    try:
        yield
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        reason = str(error).rstrip(".") or "it is cut off"
        raise InputFileError(
            f"is not a whole gzip file: {reason}.", place=place, remedy="Copy or export it again."
        ) from None
    except (OSError, ValueError) as error:
        read_text(place)  # raises the message for what is wrong
        raise InputFileError(f"cannot be read: {error}.", place=place) from None
