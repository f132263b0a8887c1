"""Events of a Chrome trace as PyTorch's profiler writes them, decoded with only the fields that are used.

Typed decoding with msgspec is faster than parsing everything and keeps a fraction of it. Shapes stay undecoded: most
calls of an operator share them, so the text alone distinguishes calls, and each different text is parsed once.
"""

from __future__ import annotations

import contextlib
import re
from collections import Counter
from typing import Annotated, Any

import msgspec

from perfmodel.errors import InputFileError

_Int = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]
#: not JSON, but in real traces: PyTorch writes bandwidths and occupancies of 0/0 and 1/0 like this
_NOT_JSON = re.compile(rb"(?<=[:\[,])(\s*)-?(?:nan|inf(?:inity)?)(?=\s*[,}\]])", re.IGNORECASE)
#: the key of the events; behind a backslash it is text within a name
_KEY, _LIST = b'"traceEvents"', re.compile(rb'(?<!\\)"traceEvents"\s*:\s*\[')
#: a key of every event, and where an event ends a list
_PHASE, _LAST = b'"ph"', re.compile(rb"\}\s*\]")
_NOTHING = msgspec.Raw(b"")


class Arguments(msgspec.Struct, gc=False):
    """The arguments of an event; shapes stay as text.

    The fields stand in the order in which the profiler writes them, in which msgspec looks for them.
    """

    external_id: _Int = msgspec.field(name="External id", default=-1)
    concrete: msgspec.Raw = msgspec.field(name="Concrete Inputs", default=_NOTHING)
    types: msgspec.Raw = msgspec.field(name="Input type", default=_NOTHING)
    strides: msgspec.Raw = msgspec.field(name="Input Strides", default=_NOTHING)
    dims: msgspec.Raw = msgspec.field(name="Input Dims", default=_NOTHING)
    # ROCm writes a stream's address as text at the call, and its number at the kernel
    device: _Int | float | str | None = -1
    stream: _Int | float | str | None = -1
    correlation: _Int = -1
    old_external_id: _Int = msgspec.field(name="external id", default=-1)
    registers: float | str | None = msgspec.field(name="registers per thread", default=None)
    bytes: float | str | None = None
    old_dims: msgspec.Raw = msgspec.field(name="Input dims", default=_NOTHING)
    collective: str | None = msgspec.field(name="Collective name", default=None)
    elements_in: float | None = msgspec.field(name="In msg nelems", default=None)
    elements_out: float | None = msgspec.field(name="Out msg nelems", default=None)
    group_size: float | None = msgspec.field(name="Group size", default=None)
    dtype: msgspec.Raw = msgspec.field(default=_NOTHING)
    group: Any = msgspec.field(name="Process Group Name", default=None)
    sequence: Any = msgspec.field(name="Seq", default=None)
    sender: Any = msgspec.field(name="Src Rank", default=None)
    receiver: Any = msgspec.field(name="Dst Rank", default=None)


#: the arguments that stay as text
RAW_FIELDS = tuple(field.name for field in msgspec.structs.fields(Arguments) if field.type is msgspec.Raw)


class Event(msgspec.Struct, gc=False):
    """One event; missing fields are None. Times are in microseconds. The order is that of `Arguments`."""

    ph: str | None = None
    cat: str | None = None
    name: str | None = None
    pid: int | float | str | None = None
    tid: int | float | str | None = None
    ts: float | None = None
    dur: float | None = None
    args: Arguments | None = None


class Header(msgspec.Struct):
    """The document's other keys; any value is accepted, since nothing depends on it."""

    deviceProperties: Any = None  # noqa: N815 -- the names in the file
    distributedInfo: Any = None  # noqa: N815
    baseTimeNanoseconds: Any = None  # noqa: N815
    host_name: Any = None


class _Document(Header):
    traceEvents: list[Event] | None = None  # noqa: N815


class _RawDocument(Header):
    traceEvents: list[msgspec.Raw] | None = None  # noqa: N815


#: what the decoder raises for text that is not JSON
NOT_JSON = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
_DOCUMENT, _EVENTS = msgspec.json.Decoder(_Document), msgspec.json.Decoder(list[Event])
_RAW_DOCUMENT, _RAW_EVENTS = msgspec.json.Decoder(_RawDocument), msgspec.json.Decoder(list[msgspec.Raw])
#: of an event with a field of a wrong type, numbers that are written as text count
_EVENT = msgspec.json.Decoder(Event, strict=False)
_VALUES = msgspec.json.Decoder(dict[str, msgspec.Raw])


def decode_document(data: bytes, skipped: Counter[str], place: str) -> tuple[Header, list[Event]]:
    """Decode a whole trace: an object with ``traceEvents``, or a bare list of events.

    An event with a field of a wrong type is skipped and counted in ``skipped``.

    Raises
    ------
    InputFileError
        When the text is not JSON, or has no list of events, or several.
    """
    data = data.removeprefix(b"\xef\xbb\xbf")
    if apart := _decode_apart(data, skipped):
        return apart
    try:
        return _decode_document(data, skipped, place)
    except NOT_JSON as error:
        cleaned = without_nan(data)
        if cleaned is None:
            raise not_json(error, place) from None
    try:
        return _decode_document(cleaned, skipped, place)
    except NOT_JSON as error:
        raise not_json(error, place) from None


def _decode_apart(data: bytes, skipped: Counter[str]) -> tuple[Header, list[Event]] | None:
    """Decode the list of events, and what is around it, on its own; None where that is not possible.

    If the text from the key to the last event is one list, no second list is in it, so that only the rest has to be
    searched for one.
    """
    begun = _LIST.match(data, max(data.find(_KEY), 0))
    ended = begun and _LAST.search(data, max(data.rfind(_PHASE), begun.end()))
    if not begun or not ended:
        return None
    begin, end = begun.end() - 1, ended.end()
    around = b"".join((data[:begin], b"[]", data[end:]))
    if around.count(_KEY) > 1:
        return None
    with contextlib.suppress(*NOT_JSON):
        document = _DOCUMENT.decode(around)
        if document.traceEvents is not None:
            return document, decode_events(memoryview(data)[begin:end], skipped)
    return None


def _decode_document(data: bytes, skipped: Counter[str], place: str) -> tuple[Header, list[Event]]:
    if data[:64].lstrip().startswith(b"["):
        return Header(), decode_events(data, skipped)
    if _lists_of_events(data) > 1:
        raise several_lists(place)
    try:
        document = _DOCUMENT.decode(data)
    except msgspec.ValidationError:
        return _decode_leniently(data, skipped, place)
    events, document.traceEvents = document.traceEvents, None  # so that they live as long as they are used
    if events is None:
        raise no_events(place)
    return document, events


def _decode_leniently(data: bytes, skipped: Counter[str], place: str) -> tuple[Header, list[Event]]:
    """Decode event by event, since a field of at least one has a wrong type."""
    try:
        document = _RAW_DOCUMENT.decode(data)
    except msgspec.ValidationError:
        raise no_events(place) from None
    texts, document.traceEvents = document.traceEvents, None
    if texts is None:
        raise no_events(place)
    return document, _one_by_one(texts, skipped)


def decode_events(data: bytes | memoryview, skipped: Counter[str]) -> list[Event]:
    """Decode a list of events; one with a field of a wrong type is skipped and counted.

    Raises
    ------
    msgspec.DecodeError
        When the text is not a JSON list.
    """
    try:
        return _EVENTS.decode(data)
    except msgspec.ValidationError:
        return _one_by_one(_RAW_EVENTS.decode(data), skipped)


def _one_by_one(texts: list[msgspec.Raw], skipped: Counter[str]) -> list[Event]:
    events = []
    for text in texts:
        try:
            events.append(_EVENT.decode(text))
        except msgspec.ValidationError:
            skipped["event with a field of the wrong type"] += 1
    return events


def without_nan(data: bytes) -> bytes | None:
    """Return the text with null for nan and inf, which are not JSON; None if it has none."""
    cleaned, found = _NOT_JSON.subn(rb"\1null", data)
    return cleaned if found else None


def has_nan(text: bytes | bytearray, end: int) -> bool:
    """Return whether nan or inf, which are not JSON, stand before a place of the text."""
    return _NOT_JSON.search(text, 0, end) is not None


def not_json(error: Exception, place: str) -> InputFileError:
    """Return the error for a trace whose text is not JSON."""
    reason = " ".join(str(error).split()).rstrip(".")
    if "truncated" in reason:
        remedy = "Was the profiler stopped, or the copy cut off? Export the trace again."
        return InputFileError("is cut off: the JSON ends in the middle.", place=place, remedy=remedy)
    if isinstance(error, RecursionError):
        return InputFileError("is nested too deeply to be read.", place=place)
    return InputFileError(f"is not valid JSON: {reason}.", place=place, remedy="Export the trace again.")


def _lists_of_events(data: bytes) -> int:
    """Return how many lists of events a trace has, without those within other values; a decoder keeps the last one.

    Raises
    ------
    msgspec.DecodeError
        When the text is not JSON.
    """
    if data.count(_KEY) < 2:
        return 1
    inner = sum(len(_LIST.findall(bytes(value))) for value in _VALUES.decode(data).values())
    return len(_LIST.findall(data)) - inner


def has_list(text: bytes) -> bool:
    """Return whether a list of events begins in a piece of a trace."""
    return _LIST.search(text) is not None


def several_lists(place: str) -> InputFileError:
    """Return the error for a trace with several lists of events."""
    return InputFileError(
        'has the key "traceEvents" several times.',
        place=place,
        remedy="Put the events in one list if they are of one process, else each list in a file of its own.",
    )


def no_events(place: str) -> InputFileError:
    """Return the error for JSON that is not a trace."""
    return InputFileError(
        'has no list "traceEvents".',
        place=place,
        remedy="Export the trace with torch.profiler's export_chrome_trace, or tensorboard_trace_handler.",
    )
