"""The public measurement tables that the shipped constants and the accuracy report rest on.

Read from ``$PERFMODEL_DATA/measurements`` (default: ``../shared/data`` beside the checkout), the layers of mixtures of
experts from ``other_latency``, if pyarrow is installed, and our own from ``examples/records``. Shapes are split by a
hash of their sizes: constants are fitted on one half, and judged on the other.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import public_data

from perfmodel.accuracy.calibration import FOLDS, family_groups, usable
from perfmodel.accuracy.fit import Group
from perfmodel.accuracy.measured import MeasuredCalls, Measurements, shape_hash
from perfmodel.core.hardware import Hardware
from perfmodel.errors import PerfModelError, UnavailableError
from perfmodel.hardware_catalog import hardware
from perfmodel.operators.attention import Attention
from perfmodel.prediction.latency.family import Family
from perfmodel.records.calls import PartsOf, read_calls

#: shapes whose hash is below this are fitted, the others judge
FITTED = 0.5
#: families with fewer rows to fit are not fitted: two in each part of the cross-validation
FEWEST_ROWS = 2 * FOLDS
#: whose measurements a table holds, by the start of its name
ORIGINS = {
    "neusight": "NeuSight @ 6945927d9afc",
    "aic": "aiconfigurator @ 095f58a51c4c",
    "vidur": "Vidur @ 7d47513363ec",
    "llmservingsim": "LLMServingSim @ 5daddb21a545",
}
#: our own, measured with `perfmodel bench`
RECORDS = Path(__file__).resolve().parents[1] / "examples" / "records"
#: those that are fitted to; others judge the constants on a machine that torch's were not fitted on
FITTED_RECORDS = "h100-*.json.gz"


@dataclass(frozen=True)
class Exclusion:
    """Rows that are no measurement of what their columns say, and why."""

    reason: str
    mask: Callable[[MeasuredCalls], Any]


EXCLUSIONS = (
    Exclusion(
        "full attention whose time grows in proportion to the sequence from 512 tokens on: the kernel had a window",
        lambda call: (
            call.implementation.endswith("/trtllm_mha")
            & (call.op.op == "attention")
            & _size(call, "seq_q", 512.0)
            & (np.asarray(call.op.params().get("window", 1)) == 0)
        ),
    ),
    Exclusion(
        "windowed attention by a kernel that visits every key (up to 145 times the others' time)",
        lambda call: call.implementation.endswith("/triton") & (call.op.op == "attention"),
    ),
    Exclusion(
        "all-reduce measured twice in a row: the first is a call from the host, the second a replayed graph",
        lambda call: _first_of_two(call),
    ),
    Exclusion(
        "copies of another library's rows",
        lambda call: (
            call.implementation == "trtllm_custom_allreduce-1.2.0rc5"
            or (call.hardware == "l40s" and call.implementation.startswith("trtllm_custom_allreduce"))
        ),
    ),
    Exclusion(
        "below 15 us in a table without rows below 10 us: of the short calls it has the slow ones only",
        lambda call: call.implementation.startswith("vidur") & (call.time_s < 15e-6),
    ),
    Exclusion(
        "activations without a gate, labelled silu_mul: sizes that a hidden layer of 10,240 gives and none of the "
        "gated models' (multiples of 3, 7 or 43)",
        lambda call: (
            call.implementation.startswith("vidur")
            & (call.op.params().get("kind") == "silu_mul")
            & _divides(call, "numel", UNGATED, GATED)
        ),
    ),
    Exclusion(
        "gelu from a faster host (31 us of dispatch, where every other kind has 45)",
        lambda call: (call.hardware == "p100-pcie-16gb") & (call.op.params().get("kind") == "gelu"),
    ),
    Exclusion(
        "products of our own Triton kernels: too few shapes to tell a library's constants",
        lambda call: (call.library == "triton") & (call.op.op == "gemm"),
    ),
    Exclusion(
        "products of integers in PyTorch whose weights lie row by row",
        lambda call: (call.library == "torch") & (call.op.op == "gemm") & (call.op.dtype == "int8"),
    ),
    Exclusion(
        "layers of a mixture of experts in PyTorch, call by call of the host: compositions",
        lambda call: (call.library == "torch") & (call.op.op == "moe"),
    ),
)


def _first_of_two(call: MeasuredCalls) -> Any:
    """Return the rows whose shape stands again in the next line of the same table.

    The place decides, not the time: a rule that keeps the faster row would flatter the model.
    """
    if not call.implementation.startswith("sglang_custom_allreduce"):
        return False
    sizes = [np.broadcast_to(value, call.time_s.shape) for value in call.op.params().values() if np.ndim(value)]
    same = np.all([size[1:] == size[:-1] for size in sizes], axis=0) & (np.diff(call.line) == 1)
    return np.append(same, False)


#: hidden layer of the model without a gate among those of Vidur's activations, and factors of those of all others: the
#: 26 rows of this size take half the time of the others
UNGATED, GATED = 10_240, (3, 7, 43)


def _divides(call: MeasuredCalls, name: str, divisor: int, others: Sequence[int]) -> Any:
    """Return which rows have a size that a number divides, and none of some others does."""
    size = np.asarray(call.op.params().get(name, 1))
    return (np.mod(size, divisor) == 0) & np.all([np.mod(size, other) > 0 for other in others], axis=0)


def _size(call: MeasuredCalls, name: str, least: float) -> Any:
    return np.asarray(call.op.params().get(name, 0)) >= least


#: family -> hardware -> groups of rows
Data = dict[str, dict[str, list[Group]]]
#: family -> hardware -> whose measurements
Origins = dict[str, dict[str, set[str]]]


@dataclass(frozen=True)
class OpenTables:
    """The tables as they are fitted and judged.

    Attributes
    ----------
    calls : the usable calls.
    machines : those that they ran on.
    left_out : the calls that `EXCLUSIONS` leave out.
    excluded : (table, hardware, reason, rows) of all that is left out.
    """

    calls: list[MeasuredCalls]
    machines: dict[str, Hardware]
    left_out: list[MeasuredCalls]
    excluded: list[tuple[str, str, str, int]]


def folder() -> Path:
    """Return the folder of the measurement tables."""
    return public_data.path_of("measurements")


def tables() -> list[Path]:
    """Return the files of the measurement tables.

    Raises
    ------
    FileNotFoundError
        If there are none.
    """
    paths = sorted(folder().glob("*.csv.gz"))
    if not paths:
        raise FileNotFoundError(f"no tables in {folder()}: set PERFMODEL_DATA")
    return paths


def _tables(excluded: list[tuple[str, str, str, int]]) -> Iterator[tuple[str, Measurements]]:
    """Yield the name and the content of each table; those that a library is missing for are ``excluded``."""
    own = sorted(RECORDS.glob(FITTED_RECORDS))
    for path in (*tables(), *(folder().parent / "other_latency").glob("aic_moe.parquet"), *own):
        name = path.name.partition(".")[0]
        try:
            yield name, read_calls(path)
        except UnavailableError as error:
            excluded.append((name, "", error.message, 0))


def load() -> OpenTables:
    """Read every table; flagged rows and rows faster than the bound are left out and counted.

    Raises
    ------
    FileNotFoundError
        If there are no tables.
    """
    calls, machines, left_out, excluded = [], {}, [], []
    for name, table in _tables(excluded):
        excluded += [(name, "", skipped.reason, skipped.rows) for skipped in table.skipped]
        counts: Counter[tuple[str, str]] = Counter()
        for call in table.calls:
            call = replace(call, hardware=hardware(call.hardware).name)  # a table may have an alias of it
            machine = machines.setdefault(call.hardware, hardware(call.hardware))
            try:
                mask, reasons = usable(call, machine)
            except PerfModelError as error:
                counts[call.hardware, error.message] += len(call)
                continue
            everything = mask
            for exclusion in EXCLUSIONS:
                out = mask & np.broadcast_to(exclusion.mask(call), mask.shape)
                reasons[exclusion.reason] = int(out.sum())
                mask = mask & ~out
            for reason, rows in reasons.items():
                if rows:
                    counts[call.hardware, f"{reason} ({call.implementation})"] += rows
            if mask.any():
                calls.append(call.take(mask))
            if (everything & ~mask).any():
                left_out.append(call.take(everything & ~mask))
        excluded += [(name, machine, reason, rows) for (machine, reason), rows in counts.items()]
    return OpenTables(calls, machines, left_out, excluded)


def judge_records(end: str, parts_of: PartsOf | None = None) -> list[Measurements]:
    """Return our own records whose names end so, which nothing is fitted on; with ``parts_of``, compositions too."""
    fitted = set(RECORDS.glob(FITTED_RECORDS))
    return [read_calls(path, parts_of) for path in sorted(RECORDS.glob(f"*{end}.json.gz")) if path not in fitted]


def half(calls: Sequence[MeasuredCalls], *, fitted: bool) -> list[MeasuredCalls]:
    """Return the rows whose shapes are for fitting, or those that judge."""
    found = []
    for call in calls:
        mask = (shape_hash(call.op, len(call)) < FITTED) == fitted
        if mask.any():
            found.append(call.take(mask))
    return found


#: rows of (hardware, library) that ran in another host than the library's other rows, by their implementation
OTHER_HOSTS = {("l40s", "sglang_custom_allreduce"): "sglang_custom_allreduce-0.5.12"}


def _host_weight(call: MeasuredCalls, calls: Sequence[MeasuredCalls]) -> float:
    """Return the weight of rows through a host: two hosts that ran a library count alike, whatever their rows."""
    other = OTHER_HOSTS.get((call.hardware, call.library))
    if call.implementation != other:
        return 1.0
    same = [one for one in calls if (one.hardware, one.library, one.op.op) == (call.hardware, call.library, call.op.op)]
    own, first = (sum(len(one) for one in same if (one.implementation == other) is here) for here in (True, False))
    return max(1.0, first / own)


def is_of_framework(call: MeasuredCalls) -> bool:
    """Return whether a call of attention is a framework's or our own kernel's: `fit_backends` fits these."""
    return call.op.op == "attention" and call.library not in Attention.WRITING


def by_family(
    calls: Sequence[MeasuredCalls], machines: dict[str, Hardware], *, frameworks: bool = False
) -> tuple[Data, dict[str, Family], Origins]:
    """Return the rows by family and hardware, the families, and whose measurements the rows are.

    Calls of attention by ``frameworks`` are left out unless they are asked for, and families of a few rows, whose
    constants stay those of the code.
    """
    data: Data = {}
    families: dict[str, Family] = {}
    origins: Origins = {}
    for call in calls:
        if is_of_framework(call) and not frameworks:
            continue
        for name, (family, groups) in family_groups([call], machines).items():
            families[name] = family
            if name == "collective_host":
                groups = [replace(group, weight=_host_weight(call, calls)) for group in groups]
            data.setdefault(name, {}).setdefault(call.hardware, []).extend(groups)
            origins.setdefault(name, {}).setdefault(call.hardware, set()).add(origin(call))
    for name in [name for name, machine in data.items() if _rows_of(machine) < FEWEST_ROWS and not frameworks]:
        del data[name], families[name], origins[name]
    return data, families, origins


def _rows_of(groups: dict[str, list[Group]]) -> int:
    return sum(len(group) for rows in groups.values() for group in rows)


def origin(call: MeasuredCalls) -> str:
    """Return whose measurement a call is: our own are named by machine and date."""
    path = Path(call.place)
    return f"own record {path.name.partition('.')[0]}" if path.parent == RECORDS else ORIGINS[path.name.split("_")[0]]
