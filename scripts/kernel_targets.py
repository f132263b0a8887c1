"""How near the kernels of a bench record are to their targets, as one table.

    python scripts/kernel_targets.py record.json [--steps steps.tsv]

Targets, each within one record, so that the state of the machine is the same on both sides: elementwise operators and
norms on tensors from 256 MB on at 90 % of the copy's bandwidth; Triton's GEMM at 90 % of cuBLAS; Triton's flash
attention at 85 % of the fastest SDPA backend; compositions slower than one kernel by the factor that the model
expects, within its interval. ``--steps`` names a file of lines "step TAB seconds TAB result" to put above them.
Exit code 1 when a target is missed or was not measured.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from perfmodel.errors import InputFileError
from perfmodel.records.record import read_record
from perfmodel.records.schema import Row, Status

LARGE_BYTES = 256e6
STREAMS = ("add", "gelu", "silu_mul", "chain4", "layer_norm", "rms_norm")


@dataclass(frozen=True)
class Target:
    """One line of the table: what, the share that is asked for, the share that was reached, and between what."""

    what: str
    asked: str
    reached: str
    met: bool


def missing(what: str, asked: str) -> Target:
    """Return the line of a target that the record says nothing of."""
    return Target(what, asked, "not measured", False)


def measured(rows: Sequence[Row], op: str, dtype: str | None = None, **params: Any) -> list[Row]:
    """Return the rows with a time of an operator, with some dimensions, in one dtype if it is given."""
    return [
        row
        for row in rows
        if row.op == op
        and row.status == Status.OK
        and row.measured_time_s
        and dtype in (None, row.dtype)
        and all(row.params.get(name) == value for name, value in params.items())
    ]


def fastest(rows: Sequence[Row], backend: str) -> Row | None:
    """Return the fastest row of a backend that is no composition."""
    own = [row for row in rows if row.backend == backend and not row.is_composed]
    return min(own, key=time_of, default=None)


def time_of(row: Row) -> float:
    """Return the measured time of a row that `measured` returned [s]."""
    assert row.measured_time_s is not None
    return row.measured_time_s


def is_large(row: Row) -> bool:
    """Whether a stream's larger side, what it reads or what it writes, is 256 MB or more."""
    return max(row.bytes_read or 0.0, row.bytes_written or 0.0) >= LARGE_BYTES


def streams(rows: Sequence[Row]) -> Iterator[Target]:
    """Yield the targets of operators that only move memory, against the copy of the same record."""
    copies = [row for row in measured(rows, "elementwise", kind="copy") if is_large(row)]
    best = max((row.achieved_bytes_per_s or 0.0 for row in copies), default=0.0)
    if not best:
        yield missing("copy bandwidth", "")
    for name in STREAMS:
        of_op = measured(rows, name) if "_norm" in name else measured(rows, "elementwise", kind=name)
        row = fastest([row for row in of_op if is_large(row)], "triton")
        rate = row.achieved_bytes_per_s if row else None
        if not best or row is None or rate is None:
            yield missing(f"{name}, triton, of the copy's bandwidth", "90%")
            continue
        reached = f"{rate / best:.1%}: {rate / 1e12:.2f} of {best / 1e12:.2f} TB/s, {row.kernel}"
        yield Target(f"{name}, triton, of the copy's bandwidth", "90%", reached, rate / best >= 0.9)


def against(what: str, rows: Sequence[Row], share: float) -> Target:
    """Return the target of the fastest Triton kernel against the fastest call of the library, on the same point."""
    asked = f"{share:.0%}"
    ours, library = fastest(rows, "triton"), fastest(rows, "torch")
    if ours is None or library is None:
        return missing(what, asked)
    reached = time_of(library) / time_of(ours)
    rates = [f"{(row.achieved_flop_per_s or 0.0) / 1e12:.0f} TFLOP/s {row.kernel}" for row in (ours, library)]
    return Target(what, asked, f"{reached:.1%}: {rates[0]}, {rates[1]}", reached >= share)


def compositions(rows: Sequence[Row]) -> Iterator[Target]:
    """Yield how much slower each composition from 0.1 ms on is than one kernel, against what the model expects.

    One kernel is the library's where it has one, else Triton's.
    """
    for row in rows:
        expected = (row.composition_time_low_s, row.composition_time_s, row.composition_time_high_s)
        if row.status != Status.OK or None in expected or (row.measured_time_s or 0) < 1e-4:
            continue
        same = [other for other in measured(rows, row.op, row.dtype) if other.params == row.params]
        library = fastest(same, "torch") or fastest(same, "triton")
        if library is None or not library.predicted_time_s:
            continue
        factor = time_of(row) / time_of(library)
        # a library without a kernel of its own is predicted as the composition: the kernel beside it is what counts
        low, middle, high = ((time_s or 0.0) / library.predicted_time_s for time_s in expected)
        yield Target(
            f"{row.op} {row.dimensions} {row.dtype}, {row.kernel}",
            f"{middle:.2f} x ({low:.2f} to {high:.2f})",
            f"{factor:.2f} x",
            low <= factor <= high,
        )


def targets(rows: Sequence[Row]) -> list[Target]:
    """Return every target, whether the record has what it needs or not."""
    cube = dict.fromkeys(("m", "n", "k"), 8192)
    prefill = {"batch": 2, "heads": 32, "kv_heads": 32, "seq_q": 8192, "seq_kv": 8192, "head_dim": 128, "causal": True}
    return [
        *streams(rows),
        against("gemm bf16 8192^3, triton, of cuBLAS", measured(rows, "gemm", dtype="bf16", **cube), 0.9),
        against(
            "attention bf16 8k causal, triton, of the best SDPA",
            measured(rows, "attention", dtype="bf16", **prefill),
            0.85,
        ),
        *compositions(rows),
    ]


def steps(path: Path | None) -> list[Target]:
    """Return the lines of a file of steps: name, seconds, result."""
    if path is None:
        return []
    cells = [line.split("\t") for line in path.read_text(encoding="utf-8").splitlines() if line]
    return [Target(name, "", f"{seconds} s, {result}", result == "ok") for name, seconds, result in cells]


def table(lines: Sequence[Target]) -> str:
    """Return the lines as one table."""
    cells = [("", "target", "reached", "met"), *((t.what, t.asked, t.reached, "yes" if t.met else "NO") for t in lines)]
    widths = [max(len(row[column]) for row in cells) for column in range(4)]
    return "\n".join("  ".join(f"{text:<{width}}" for text, width in zip(row, widths, strict=True)) for row in cells)


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the table of a record; return 1 when anything in it is not met."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("record", type=Path)
    parser.add_argument("--steps", type=Path)
    given = parser.parse_args(arguments)
    rows: Sequence[Row] = ()
    try:
        rows = read_record(given.record, ("bench",)).rows
    except InputFileError as error:  # a suite that was cut short has no record; its steps are shown all the same
        sys.stderr.write(f"{error}\n")
    lines = [*steps(given.steps), *targets(rows)]
    print(table(lines))
    return int(not all(line.met for line in lines))


if __name__ == "__main__":
    sys.exit(main())
