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
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from perfmodel.records.schema import is_composed

Row = Mapping[str, Any]

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


def measured(rows: Sequence[Row], op: str, **params: Any) -> list[Row]:
    """Return the rows with a time of an operator with some dimensions."""
    return [
        row
        for row in rows
        if row["op"] == op
        and row["status"] == "ok"
        and all(row["params"].get(name, row.get(name)) == value for name, value in params.items())
    ]


def fastest(rows: Sequence[Row], backend: str) -> Row | None:
    """Return the fastest row of a backend that is no composition."""
    own = [row for row in rows if row["backend"] == backend and not is_composed(row)]
    return min(own, key=lambda row: row["measured_time_s"], default=None)


def is_large(row: Row) -> bool:
    """Whether a stream's larger side, what it reads or what it writes, is 256 MB or more."""
    return bool(max(row["bytes_read"], row["bytes_written"]) >= LARGE_BYTES)


def streams(rows: Sequence[Row]) -> Iterator[Target]:
    """Yield the targets of operators that only move memory, against the copy of the same record."""
    copies = [row for row in measured(rows, "elementwise", kind="copy") if is_large(row)]
    best = max((row["achieved_bytes_per_s"] for row in copies), default=None)
    if best is None:
        yield missing("copy bandwidth", "")
    for name in STREAMS:
        of_op = measured(rows, name) if "_norm" in name else measured(rows, "elementwise", kind=name)
        large = [row for row in of_op if is_large(row)]
        row = fastest(large, "triton")
        if best is None or row is None:
            yield missing(f"{name}, triton, of the copy's bandwidth", "90%")
            continue
        share = row["achieved_bytes_per_s"] / best
        reached = f"{share:.1%}: {row['achieved_bytes_per_s'] / 1e12:.2f} of {best / 1e12:.2f} TB/s, {row['kernel']}"
        yield Target(f"{name}, triton, of the copy's bandwidth", "90%", reached, share >= 0.9)


def against(what: str, rows: Sequence[Row], share: float) -> Target:
    """Return the target of the fastest Triton kernel against the fastest call of the library, on the same point."""
    asked = f"{share:.0%}"
    ours, library = fastest(rows, "triton"), fastest(rows, "torch")
    if ours is None or library is None:
        return missing(what, asked)
    reached = library["measured_time_s"] / ours["measured_time_s"]
    rate = [f"{row['achieved_flop_per_s'] / 1e12:.0f} TFLOP/s {row['kernel']}" for row in (ours, library)]
    return Target(what, asked, f"{reached:.1%}: {rate[0]}, {rate[1]}", reached >= share)


def compositions(rows: Sequence[Row]) -> Iterator[Target]:
    """Yield how much slower each composition from 0.1 ms on is than one kernel, against what the model expects."""
    for row in rows:
        if row["status"] != "ok" or not row.get("composition_time_s") or row["measured_time_s"] < 1e-4:
            continue
        same = [r for r in measured(rows, row["op"], dtype=row["dtype"]) if r["params"] == row["params"]]
        library = fastest(same, "torch") or fastest(same, "triton")
        if library is None:
            continue
        factor = row["measured_time_s"] / library["measured_time_s"]
        low, expected, high = (
            row[f"composition_time{end}_s"] / row["predicted_time_s"] for end in ("_low", "", "_high")
        )
        yield Target(
            f"{row['op']} {row['dimensions']} {row['dtype']}, {row['kernel']}",
            f"{expected:.2f} x ({low:.2f} to {high:.2f})",
            f"{factor:.2f} x",
            low <= factor <= high,
        )


def targets(rows: Sequence[Row]) -> list[Target]:
    """Return every target, whether the record has what it needs or not."""
    cube = dict.fromkeys(("m", "n", "k"), 8192)
    prefill = {"seq_q": 8192, "head_dim": 128, "causal": True}
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
    rows = json.loads(given.record.read_text(encoding="utf-8"))["rows"] if given.record.exists() else []
    lines = [*steps(given.steps), *targets(rows)]
    print(table(lines))
    return int(not all(line.met for line in lines))


if __name__ == "__main__":
    sys.exit(main())
