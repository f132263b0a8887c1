"""Reports of ``nsys stats --format json``: one list of rows each, with the headers of the CSV as keys."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping

from perfmodel.errors import InputFileError
from perfmodel.formats.nsys.reports import kind_of
from perfmodel.formats.text.stream import StreamTable

#: a report has the same keys in each row, so that the first row tells which it is
_BEFORE_FIRST_ROW = re.compile(r"\ufeff?\s*\[\s*(?=\{)")


def is_report(head: str) -> bool:
    """Return whether a text begins as the JSON of a report.

    >>> is_report('[{"Time (%)": 100.0, "Total Time (ns)": 3000, "Instances": 3, "Name": "f"}]'), is_report("[1, 2]")
    (True, False)
    """
    start = _BEFORE_FIRST_ROW.match(head)
    if start is None:
        return False
    try:
        row, _ = json.JSONDecoder().raw_decode(head, start.end())
    except (ValueError, RecursionError):
        return False
    return bool(kind_of(list(row)))


def report_in(text: str, place: str) -> StreamTable:
    """Return the report in a JSON text; the lines of its rows are their numbers.

    Raises
    ------
    InputFileError
        When the text is not JSON, or a row has other keys than the first one.
    """
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InputFileError(f"is not valid JSON: {error}.", place=place, remedy="Was the file cut off?") from None
    headers: tuple[str, ...] = ()
    rows = []
    for number, row in enumerate(document, start=1):
        keys = tuple(row) if isinstance(row, Mapping) else ()
        headers = headers or keys
        if keys != headers:
            raise InputFileError(f"row {number} has other keys than the first one.", place=place)
        rows.append((number, ["" if value is None else str(value) for value in row.values()]))
    return StreamTable("", headers, 1, rows)
