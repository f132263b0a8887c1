"""``key_averages()`` as a list of events in JSON or CSV, with the attributes of FunctionEventAvg."""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from perfmodel.errors import InputFileError
from perfmodel.formats.key_averages.rows import Row, Rows, parse_calls, parse_number, possible_time_s, with_shapes
from perfmodel.formats.text.numbers import MISSING

#: names of the attributes today and in older versions; times are microseconds
_SELF_DEVICE = ("self_device_time_total", "self_cuda_time_total", "self_xpu_time_total")
_SELF_CPU = ("self_cpu_time_total",)
_NAME = ("key", "name", "Name")
_COUNT = ("count", "calls", "# of Calls")
_ATTRIBUTE = re.compile(r"\b(?:" + "|".join((*_SELF_DEVICE, *_SELF_CPU)) + r")\b")


def has_events(text: str) -> bool:
    """Whether a text holds such events; a trace may have the same keys, but it is another format."""
    return _ATTRIBUTE.search(text) is not None and "traceEvents" not in text


def is_json(text: str) -> bool:
    """Whether a text starts as a JSON list or object does."""
    return text.lstrip()[:1] in ("[", "{")


def read_json(text: str, place: str) -> Rows:
    """Return the rows of a JSON document: a list of events, or an object with one list in it.

    Raises
    ------
    InputFileError
        When the JSON is invalid or has no list of events, or a time is not a number of microseconds.
    """
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InputFileError(f"is not valid JSON: {error}.", place=place, remedy="Was the file cut off?") from None
    if isinstance(document, Mapping):
        lists = [value for value in document.values() if isinstance(value, list) and value]
        document = lists[0] if len(lists) == 1 else None
    if not isinstance(document, list) or not all(isinstance(event, Mapping) for event in document):
        raise InputFileError(
            "holds no list of events of key_averages().", place=place, remedy="Write a list of objects."
        )
    return _rows(document, place)


def read_csv(lines: Sequence[str], place: str) -> Rows:
    """Return the rows of CSV text; lines above the header are ignored.

    Raises
    ------
    InputFileError
        When there is no header, the CSV is damaged, or a time is not a number of microseconds.
    """
    header = next((index for index, line in enumerate(lines) if _ATTRIBUTE.search(line)), None)
    if header is None:
        raise InputFileError(
            "has no table of key_averages().",
            place=place,
            remedy="Save print(prof.key_averages().table(row_limit=-1)).",
        )
    try:
        return _rows(csv.DictReader(lines[header:]), place)
    except csv.Error as error:
        raise InputFileError(f"cannot be split: {error}.", place=place, remedy="Was the file cut off?") from None


def _rows(events: Iterable[Mapping[str, Any]], place: str) -> Rows:
    result = Rows()
    for number, event in enumerate(events, start=1):
        name = _first(event, _NAME)
        if name is None:
            result.skipped["event without a name"] += 1
        else:
            result.rows.append(_row(str(name), event, f"{place}, event {number}"))
    return result


def _row(name: str, event: Mapping[str, Any], where: str) -> Row:
    device_s, cpu_s = (_microseconds(_first(event, keys), where) for keys in (_SELF_DEVICE, _SELF_CPU))
    kind = str(event.get("device_type", ""))
    if kind:
        on_device = "CPU" not in kind.upper() and kind != "0"
    else:
        # a kernel takes no time on the CPU
        on_device = device_s > 0 and cpu_s == 0 and not _positive(event.get("cpu_time_total"))
    shapes = event.get("input_shapes")
    return Row(
        with_shapes(name, "" if shapes is None else str(shapes)),
        parse_calls(_first(event, _COUNT)),
        cpu_s,
        device_s,
        on_device,
        parse_number(event.get("flops")) or None,
    )


def _first(event: Mapping[str, Any], keys: Sequence[str]) -> Any:
    return next((event[key] for key in keys if event.get(key) not in (None, "")), None)


def _positive(value: Any) -> bool:
    number = parse_number(value)
    return number is not None and number > 0


def _microseconds(value: Any, where: str) -> float:
    """Return a time given in microseconds [s]; 0 without a value."""
    if value is None or (isinstance(value, str) and value.strip().lower() in MISSING):
        return 0.0
    number = parse_number(value)
    if number is None:
        raise InputFileError(f"the time {str(value)[:40]!r} is not a number of microseconds.", place=where)
    return possible_time_s(number * 1e-6, str(value), where)
