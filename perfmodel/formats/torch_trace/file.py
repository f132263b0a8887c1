"""Reads a trace file, whole or, if it is too large for that, piece by piece."""

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
from pathlib import Path
from typing import IO, cast

import msgspec

from perfmodel import storage
from perfmodel.errors import InputFileError
from perfmodel.files import read_text, unpacked
from perfmodel.formats.torch_trace.events import (
    Event,
    Header,
    decode_document,
    decode_events,
    no_events,
    without_nan,
)

_GZIP = b"\x1f\x8b"
#: unpacked bytes that are decoded at a time
BLOCK_BYTES = 16_000_000
#: events are a few kB, so text of this length without a boundary between two of them is damaged
_LONGEST_BYTES = 10 * BLOCK_BYTES
#: traces unpack to 11 to 26 times their size, and damage or malice to up to 1032 times, the most that deflate can do
_LARGEST_RATIO = 200
_START = re.compile(rb'"traceEvents"\s*:\s*\[')
_BETWEEN = re.compile(rb"\}\s*(,)\s*\{")
#: how far from the end of a block a boundary between two events is searched, and how many commas are tried
_TAIL_BYTES, _ATTEMPTS = 65536, 64


class Source:
    """The events of one trace file.

    Parameters
    ----------
    path : the file, plain or gzip.
    stream_above_bytes : unpacked size above which it is decoded piece by piece [B].

    Attributes
    ----------
    header : the document's other keys; complete once `events` is exhausted.
    skipped : reason -> number of skipped events.
    """

    def __init__(self, path: str | os.PathLike[str], stream_above_bytes: int) -> None:
        self.path, self.place = Path(storage.local(path)), os.fspath(path)
        self.limit = stream_above_bytes
        self.header = Header()
        # most bytes that the file may unpack to, or infinity if it is not packed
        self._most_bytes = math.inf
        self.skipped: Counter[str] = Counter()

    def events(self) -> Iterator[list[Event]]:
        """Yield the events, all at once or in the order of the file.

        Raises
        ------
        InputFileError
            When the file cannot be read, is an incomplete gzip file, is not JSON, or has no events.
        """
        with _file_errors(self.place):
            data = self._whole()
        if data is None:
            with _file_errors(self.place), self._open() as stream:
                yield from self._pieces(stream)
            return
        if not data.strip(b"\0 \t\r\n"):
            raise _blank(data, self.place)
        self.header, events = decode_document(data, self.skipped, self.place)
        del data
        yield events

    def _whole(self) -> bytes | None:
        """Return all bytes, unpacked, or None if they are more than the limit."""
        size = self.path.stat().st_size
        with self.path.open("rb") as stream:
            packed = stream.read(2) == _GZIP
            if not packed and size > self.limit:
                return None
            if packed and size >= 8:
                # RFC 1952: the last four bytes are the unpacked size modulo 2^32 of the last member
                stream.seek(-4, os.SEEK_END)
                if struct.unpack("<I", stream.read(4))[0] > self.limit:
                    return None
            stream.seek(0)
            data = stream.read()
        return unpacked(data, self.limit) if packed else data

    def _open(self) -> IO[bytes]:
        with self.path.open("rb") as stream:
            packed = stream.read(2) == _GZIP
        if not packed:
            return self.path.open("rb")
        self._most_bytes = max(self.limit, _LARGEST_RATIO * self.path.stat().st_size)
        return cast(IO[bytes], gzip.open(self.path, "rb"))

    def _pieces(self, stream: IO[bytes]) -> Iterator[list[Event]]:
        """Yield the events, decoded a block at a time."""
        rest = self._to_first_event(stream)
        read_bytes, ended = len(rest), False
        while not ended:
            block = stream.read(BLOCK_BYTES)
            ended = not block
            rest += block
            read_bytes += len(block)
            if read_bytes > self._most_bytes:
                raise InputFileError(
                    f"unpacks to over {_LARGEST_RATIO} times its size, which no trace does.",
                    place=self.place,
                    remedy="Export the trace again.",
                )
            if len(rest) >= BLOCK_BYTES:
                events, rest = self._cut(rest)
                if events:
                    yield events
                elif len(rest) > _LONGEST_BYTES:
                    raise InputFileError("has an event that does not end.", place=self.place)
        # after the last event come the end of the list and a few keys
        opening = b"[" if isinstance(self.header, _Bare) else b'{"traceEvents":['
        tail, events = decode_document(opening + rest, self.skipped, self.place)
        for name in Header.__struct_fields__:
            setattr(self.header, name, getattr(self.header, name) or getattr(tail, name))
        yield events

    def _to_first_event(self, stream: IO[bytes]) -> bytes:
        """Read the keys before the events, and return the start of the events."""
        data = stream.read(BLOCK_BYTES)
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

    def _cut(self, text: bytes) -> tuple[list[Event], bytes]:
        """Decode complete events from the start of a text; return them and the text after them.

        A comma between braces may be inside an event, or inside a name. But then the text before it has an open brace
        or quote and is not a list, so the last comma before which everything decodes is between two events.
        """
        commas = [match.start(1) for match in _BETWEEN.finditer(text, max(0, len(text) - _TAIL_BYTES))]
        for comma in reversed(commas[-_ATTEMPTS:]):
            piece = b"[" + text[:comma] + b"]"
            with contextlib.suppress(msgspec.DecodeError, UnicodeDecodeError, RecursionError):
                return decode_events(piece, self.skipped), text[comma + 1 :]
            cleaned = without_nan(piece)
            if cleaned is not None:
                with contextlib.suppress(msgspec.DecodeError, UnicodeDecodeError, RecursionError):
                    return decode_events(cleaned, self.skipped), text[comma + 1 :]
        return [], text


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
