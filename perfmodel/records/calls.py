"""Measured calls from a record of ``perfmodel bench`` or from a table, for `validate` and `calibrate --from`."""

from __future__ import annotations

import contextlib
import math
import os
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import msgspec
import numpy as np

from perfmodel.accuracy.measured import SHORTEST_S, MeasuredCalls, Measurements, Skips
from perfmodel.core.machine_parts import GPUS_IN_A_HOST
from perfmodel.core.vocabulary import CacheState, Timing
from perfmodel.errors import InputFileError, PerfModelError, UsageError
from perfmodel.files import check_regular, opened
from perfmodel.operators import Operator, load_operator, operator_names
from perfmodel.prediction.implementations import releases_of, with_release
from perfmodel.prediction.topology import MOST_IN_A_HOST, joins_hosts
from perfmodel.records.measurements import read_measurements
from perfmodel.records.record import read_record
from perfmodel.records.schema import Record, Row, Status

#: returns the operators that a kernel, by its name, runs one after another in place of an operator, and why it is not
#: known which they are: one of the two is empty
PartsOf = Callable[[Operator, str], tuple[Sequence[Operator], str]]
#: why the rows of kernels that run several operators are left out where nobody tells which
COMPOSED = "a composition of several kernels"


def read_calls(path: str | os.PathLike[str], parts_of: PartsOf | None = None, hardware: str = "") -> Measurements:
    """Return the measured calls of a record of ``perfmodel bench`` or of a table of measurements.

    The first character tells them apart, of what is inside where the file is gzip: a JSON document starts with a brace,
    a table with the name of a column. ``parts_of`` is that of `measured_calls`, and ``hardware`` that of
    `read_measurements`: a record names its machine.

    Raises
    ------
    InputFileError
        When the file cannot be read as what its first character says.
    """
    check_regular(path)
    # the readers explain what cannot be opened
    with contextlib.suppress(OSError, EOFError, ValueError, zlib.error), opened(path) as stream:
        if stream.read(64).removeprefix(b"\xef\xbb\xbf").lstrip().startswith(b"{"):
            return measured_calls(read_record(path, ("bench",)), parts_of)
    return read_measurements(path, hardware)


def measured_calls(record: Record, parts_of: PartsOf | None = None) -> Measurements:
    """Return every row of a record that has a time.

    Rows of kernels that run several operators one after another are calls of their own, with these operators as their
    ``parts``. They are left out, and counted, without ``parts_of`` or where it gives none. ``line`` counts the rows of
    the record from 1.

    Raises
    ------
    InputFileError
        When the parameters of a row do not fit its operator.
    """
    skips = Skips()
    releases = releases_of(record.facts)
    groups: dict[tuple[Any, ...], list[tuple[int, Row]]] = {}
    composed: list[MeasuredCalls] = []
    for number, row in enumerate(placed_rows(record), start=1):
        reason = _unusable(row)
        if not reason and row.is_composed:
            parts, reason = _parts(row, number, record.place, parts_of)
            if not reason:
                composed.append(replace(_calls([(number, row)], record.place, releases), parts=parts))
        elif not reason:
            groups.setdefault(_group_key(row), []).append((number, row))
        if reason:
            skips.add(reason, record.place, np.array([number]))
    calls = tuple(_calls(rows, record.place, releases) for rows in groups.values())
    return Measurements(record.place, (*calls, *composed), skips.all())


def _parts(row: Row, number: int, place: str, parts_of: PartsOf | None) -> tuple[tuple[Operator, ...], str]:
    """Return the operators that the kernel of a row runs one after another, or why they are not known."""
    if parts_of is None:
        return (), COMPOSED
    try:
        parts, reason = parts_of(load_operator(row.op)(dtype=row.dtype, **row.params), row.kernel or "")
    except (PerfModelError, TypeError, ValueError, OverflowError):
        _operator([(number, row)], place)  # explains what is wrong with the parameters
        raise
    return tuple(parts), f"{COMPOSED}: {reason}" if reason else ""


def placed_rows(record: Record) -> list[Row]:
    """Return the rows of a record, exchanges with the nodes that their ranks were on.

    Records have said so since exchanges between nodes are predicted; older ones name the hosts of their ranks only.
    Where NVLink joins hosts (NVL72), and on CPUs, hosts are no nodes.
    """
    ranks, spec = record.facts.get("ranks"), record.facts.get("spec")
    hosts = len(ranks.get("ranks_by_host") or ()) if isinstance(ranks, dict) and ranks.get("backend") == "nccl" else 0
    stated: dict[str, Any] = spec if isinstance(spec, dict) else {}
    if not hosts or _links_join_hosts(stated):
        return record.rows
    # one host is what a specification means, unless it states no [cluster] and the host has more than the usual GPUs
    fewest = 0 if hosts > 1 else GPUS_IN_A_HOST if stated and "cluster" not in stated else math.inf
    return [_placed(row, hosts) if _gpus(row) > fewest and "nodes" not in row.params else row for row in record.rows]


def _placed(row: Row, hosts: int) -> Row:
    return msgspec.structs.replace(row, params={**row.params, "nodes": hosts})


def _gpus(row: Row) -> float:
    gpus = row.params.get("num_gpus")
    return gpus if isinstance(gpus, int | float) else 0


def _links_join_hosts(spec: Mapping[str, Any]) -> bool:
    """Return whether a link of a specification joins more GPUs than a host has."""
    links, cluster = spec.get("link"), spec.get("cluster")
    domains = [link.get("domain") for link in links.values()] if isinstance(links, dict) else []
    in_a_host = cluster.get("gpus_per_node", MOST_IN_A_HOST) if isinstance(cluster, dict) else MOST_IN_A_HOST
    return joins_hosts(domains, in_a_host)


def _unusable(row: Row) -> str:
    if row.status != Status.OK or not row.measured_time_s:
        return f"status {str(row.status or '')!r}"
    return "" if row.measured_time_s >= SHORTEST_S else f"measured_time_s is not above zero ({SHORTEST_S:g} s)"


def _group_key(row: Row) -> tuple[Any, ...]:
    """Return what the rows of one group share: everything except the values of their sizes and the time."""
    sized = _sizes(row)
    params = tuple(sorted((name, None if name in sized else repr(value)) for name, value in row.params.items()))
    return (row.hardware, row.op, row.dtype, row.timing, row.cache, _implementation(row), params)


def _implementation(row: Row) -> str:
    return row.implementation or (row.kernel or "").split(".")[0]


def _calls(rows: Sequence[tuple[int, Row]], place: str, releases: Mapping[str, str]) -> MeasuredCalls:
    """Return the rows of one group, sizes as arrays."""
    numbers, records = zip(*rows, strict=True)
    first: Row = records[0]
    return MeasuredCalls(
        hardware=first.hardware,
        op=_operator(rows, place),
        time_s=np.array([row.measured_time_s for row in records]),
        timing=first.timing or Timing.KERNEL,
        cache=first.cache or CacheState.COLD,
        implementation=with_release(_implementation(first), releases),
        flags=np.array([row.flags or "" for row in records]),
        place=place,
        line=np.array(numbers),
    )


def _operator(rows: Sequence[tuple[int, Row]], place: str) -> Operator:
    """Return the operator of one group; an error names the row."""
    first = rows[0][1]
    try:
        if lists := [name for name, value in first.params.items() if isinstance(value, (list, dict))]:
            raise UsageError(f"{', '.join(lists)}: one call has one size.")
        sizes = {name: np.array([float(row.params[name]) for _, row in rows]) for name in _sizes(first)}
        return load_operator(first.op)(dtype=first.dtype, **{**first.params, **sizes})
    except (PerfModelError, TypeError, OverflowError) as error:
        if len(rows) > 1:
            for row in rows:  # raises for the first row that fails alone
                _operator([row], place)
        message = error.message if isinstance(error, PerfModelError) else f"{error}."
        raise InputFileError(
            message, place=f"{place}: row {rows[0][0]}", remedy="Write the record again with perfmodel bench."
        ) from None


def _sizes(row: Row) -> list[str]:
    """Return the names of the parameters that are sizes; a number may be another kind of parameter."""
    rules = load_operator(row.op).dimensions() if row.op in operator_names() else {}
    return [
        name
        for name, value in row.params.items()
        if isinstance(value, (int, float)) and not isinstance(value, bool)
        if rules.get(name, {}).get("kind", "size") == "size"
    ]
