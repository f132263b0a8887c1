"""Write docs/accuracy.md, and some of its figures in README.md: how well the latency model does on public rows.

    python scripts/accuracy.py          (or: make accuracy)

Rows on which the shipped constants were fitted and rows that they have not seen stand apart (`open_tables.FITTED`).
Then each machine is left out: its constants come from the other machines of its generation; where there are none, from
those of its vendor and kind of memory, or else from all.
"""

from __future__ import annotations

import dataclasses
import datetime
import itertools
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import open_tables
import whole_models
from fit_latency import shared as fit_shared
from fit_latency import typical, under

from perfmodel.accuracy.measured import MeasuredCalls, Measurements
from perfmodel.accuracy.report import FIGURES
from perfmodel.accuracy.validate import Accuracy, judge
from perfmodel.core.hardware import Hardware
from perfmodel.core.latency_table import LatencyTable
from perfmodel.core.units import format_si
from perfmodel.files import write_atomic
from perfmodel.prediction.latency.family import Family
from perfmodel.prediction.latency.machine import generation, product_line, vendor
from perfmodel.prediction.latency.tables import default_tables

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "accuracy.md"
README = ROOT / "README.md"
BEGIN, END = "<!-- accuracy: written by scripts/accuracy.py -->", "<!-- end of accuracy -->"

Calls = Sequence[MeasuredCalls]
Keep = Callable[[MeasuredCalls], Any]


def _all(call: MeasuredCalls) -> bool:
    return True


def _long(call: MeasuredCalls) -> Any:
    return call.time_s > 1e-4


def _of(*names: str) -> Keep:
    return lambda call: call.hardware in names


#: lines of the summary: title, family, machines (all where empty), rows
SUMMARY: tuple[tuple[str, str, tuple[str, ...], Keep], ...] = (
    ("elementwise fp32, above 0.1 ms", "elementwise", (), _long),
    ("elementwise fp32, all sizes", "elementwise", (), _all),
    ("layer_norm fp32, above 0.1 ms", "layer_norm", (), _long),
    ("softmax fp32, above 0.1 ms", "softmax", (), _long),
    ("gemm fp32 linear, V100 A100 H100", "gemm_fp32", ("v100-pcie-32gb", "a100-pcie-40gb", "h100-sxm5-80gb"),
     lambda call: call.op.params()["bias"]),
    ("gemm fp32 batched, V100 A100 H100", "gemm_fp32", ("v100-pcie-32gb", "a100-pcie-40gb", "h100-sxm5-80gb"),
     lambda call: not call.op.params()["bias"]),
    ("gemm fp32, T4 P4 (power-limited)", "gemm_fp32", ("t4", "p4"), _all),
    ("gemm bf16, H100 H200", "gemm_bf16", ("h100-sxm5-80gb", "h200-sxm-141gb"), _all),
    ("gemm bf16, A100", "gemm_bf16", ("a100-sxm4-80gb",), _all),
    ("gemm bf16, L40S B200", "gemm_bf16", ("l40s", "b200-sxm-180gb"), _all),
    ("gemm fp8", "gemm_fp8", (), _all),
    ("attention prefill", "attention_prefill", (), _all),
    ("attention decode", "attention_decode", (), _all),
    ("conv2d fp32", "conv2d", (), _all),
    ("all_reduce, in a node", "all_reduce", (), _all),
    ("all_gather, in a node", "all_gather", (), _all),
    ("reduce_scatter, in a node", "reduce_scatter", (), _all),
    ("alltoall, in a node", "alltoall", (), _all),
)  # fmt: skip


def accuracy(calls: Calls, machines: Mapping[str, Hardware]) -> Accuracy:
    """Judge some calls on some machines."""
    return judge([Measurements("open tables", tuple(calls))], machines.__getitem__)


def left_out(opened: open_tables.OpenTables) -> dict[str, Hardware]:
    """Return each machine with the constants that it would have if nobody had measured it.

    They are fitted on the fitting half of the rows of the other machines of its generation; where there are none, of
    other generations of its vendor and kind of memory, or else of all. The stated interval is that of the shipped
    defaults.
    """
    data, families, origins = open_tables.by_family(open_tables.half(opened.calls, fitted=True), opened.machines)
    tables: dict[str, dict[str, LatencyTable]] = defaultdict(dict)
    for name, groups in data.items():
        for machine in groups:
            tables[machine][name] = _left_out(families[name], groups, machine, opened.machines, origins[name])
    return {name: dataclasses.replace(machine, latency=tables[name]) for name, machine in opened.machines.items()}


def _left_out(
    family: Family, groups: Mapping[str, list[Any]], name: str, machines: Mapping[str, Hardware], origin: str
) -> LatencyTable:
    """Return the table that `constants` would find for a machine that is in no table."""
    others = {key: rows for key, rows in groups.items() if key != name}
    known, table = typical(family), LatencyTable({})
    found = "generic"
    for level in (None, vendor, product_line, generation):
        same = {
            key: rows for key, rows in others.items() if level is None or level(machines[key]) == level(machines[name])
        }
        if level is not generation:
            # the defaults of a generation without measurements come from others
            same = {key: rows for key, rows in same.items() if generation(machines[key]) != generation(machines[name])}
        if same:
            table = fit_shared(family, same, known, origin, [], host=level in (None, vendor))
            known = under(table, known)
            found = level(machines[name]) if level else found
    return dataclasses.replace(
        table, constants=known.values, libraries=table.libraries, intervals=default_tables(found)[family.name].intervals
    )


def subset(calls: Calls, family: str, names: tuple[str, ...], keep: Keep) -> list[MeasuredCalls]:
    """Return the rows of a line of the summary."""
    found = []
    for call in calls:
        if (names and call.hardware not in names) or not np.any(mine := _belongs(call, family)):
            continue
        mask = np.broadcast_to(keep(call) & mine, call.time_s.shape)
        if mask.any():
            found.append(call.take(mask))
    return found


def _belongs(call: MeasuredCalls, family: str) -> Any:
    """Return which rows belong to a family."""
    if call.op.op == "gemm":
        eight = call.op.dtype in ("fp8", "int8", "fp4")
        return family == ("gemm_fp32" if call.op.dtype == "fp32" else "gemm_fp8" if eight else "gemm_bf16")
    if call.op.op == "attention" and family.startswith("attention"):
        queries, keys = (np.asarray(call.op.params()[name]) for name in ("seq_q", "seq_kv"))
        return ((queries == 1) & (keys > 1)) == (family == "attention_decode")
    return call.op.op == family


def summary(unseen: Calls, shipped: Mapping[str, Hardware], never: Mapping[str, Hardware]) -> list[list[str]]:
    """Return the lines of the summary: error and coverage, calibrated and left out, and the datasheet roofline."""
    rows = []
    for title, family, names, keep in SUMMARY:
        part = subset(unseen, family, names, keep)
        if not part:
            continue
        known, new = (accuracy(part, machines).by([])[-1] for machines in (shipped, never))
        rows.append([
            title, f"{known['rows']}", _percent(known["bound_mape"]), _percent(known["mape"]),
            _percent(known["median_ape"]), _percent(known["coverage_80"]), _percent(new["mape"]),
            _percent(new["median_ape"]), _percent(new["coverage_80"]),
        ])  # fmt: skip
    return rows


SUMMARY_HEAD = (
    "family", "rows", "datasheet roofline", "calibrated: mean", "median", "in the 80 % interval",
    "machine left out: mean", "median", "in the 80 % interval",
)  # fmt: skip


#: lines of the summary that the README quotes, and what it calls them
QUOTED = {
    "elementwise fp32, all sizes": "elementwise",
    "gemm bf16, H100 H200": "GEMM in bf16 on H100 and H200",
    "gemm fp8": "GEMM in fp8",
    "attention prefill": "attention prefill",
    "attention decode": "attention decode",
    "conv2d fp32": "convolution",
    "all_reduce, in a node": "all-reduce",
}


def headline(rows: Sequence[Sequence[str]]) -> str:
    """Return the figures that the README quotes, from lines of the summary."""
    by_title = {row[0]: row for row in rows}
    quoted = [
        [name, by_title[title][1], by_title[title][2], by_title[title][3], by_title[title][6]]
        for title, name in QUOTED.items()
        if title in by_title
    ]
    return table(QUOTED_HEAD, quoted)


QUOTED_HEAD = ("mean absolute error", "rows", "datasheet roofline", "predicted", "predicted, machine left out")


def noise_floor(calls: Calls) -> list[list[str]]:
    """Return how much two libraries differ on the same shape, machine and dtype."""
    times: dict[tuple[str, str, str], dict[str, dict[tuple[float, ...], float]]] = defaultdict(
        lambda: defaultdict(dict)
    )
    for call in calls:
        family = next((name for name in ("gemm_bf16", "gemm_fp8", "attention_prefill", "attention_decode")
                       if np.all(_belongs(call, name))), "")  # fmt: skip
        if family:
            times[family, call.hardware, call.op.dtype][call.library].update(_by_shape(call))
    rows = []
    for (family, hardware, dtype), libraries in sorted(times.items()):
        for first, second in itertools.combinations(sorted(libraries), 2):
            common = libraries[first].keys() & libraries[second].keys()
            if len(common) >= 20:
                ratio = np.array([libraries[first][shape] / libraries[second][shape] for shape in common])
                off = np.abs(ratio - 1)
                rows.append([family, hardware, dtype, f"{first} / {second}", f"{len(common)}", _percent(off.mean()),
                             _percent(np.median(off)), _percent(np.median(ratio) - 1)])  # fmt: skip
    return rows


def _by_shape(call: MeasuredCalls) -> Iterator[tuple[tuple[Any, ...], float]]:
    values = call.op.params().values()
    columns = [np.broadcast_to(np.asarray(value), call.time_s.shape).tolist() for value in values]
    return zip(zip(*columns, strict=True), call.time_s.tolist(), strict=True)


def _percent(value: float) -> str:
    return "-" if np.isnan(value) else f"{100 * value:.1f} %"


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a Markdown table."""
    return "\n".join("| " + " | ".join(row) + " |" for row in (head, ["---"] * len(head), *rows))


def breakdown(found: Accuracy, keys: Sequence[str]) -> str:
    """Return the Markdown table of `Accuracy.by`, as `perfmodel validate` prints it."""
    rows = [[str(row[key]) for key in keys] + [c.text(row[c.key]) for c in FIGURES] for row in found.by(keys)]
    return table([*keys, *(column.heading for column in FIGURES)], rows)


def models() -> str:
    """Return the part on whole models: measured and predicted time of a forward pass."""
    rows = whole_models.comparison(open_tables.folder().parent)
    lines = [
        [row.hardware, row.model, f"{row.batch}", f"{row.seq}", format_si(row.measured_s, "s"),
         format_si(row.predicted.time_s, "s"), f"{100 * row.error:+.1f} %"]
        for row in rows
    ]  # fmt: skip
    head = ("machine", "model", "batch", "sequence", "measured", "predicted", "error")
    return f"{table(head, lines)}\n\nMean absolute error: {_percent(whole_models.mean_error(rows))}."


def page(opened: open_tables.OpenTables) -> tuple[str, str]:
    """Return the page, and the figures for the README."""
    fitted, unseen = (open_tables.half(opened.calls, fitted=fit) for fit in (True, False))
    never = left_out(opened)
    rows = summary(unseen, opened.machines, never)
    excluded = [[name, machine or "any", reason, f"{rows}"] for name, machine, reason, rows in opened.excluded]
    text = TEXT.format(
        date=datetime.date.today().isoformat(),
        summary=table(SUMMARY_HEAD, rows),
        unseen=breakdown(accuracy(unseen, opened.machines), ("family", "hardware")),
        regimes=breakdown(accuracy(unseen, opened.machines), ("family", "regime")),
        dtypes=breakdown(accuracy(unseen, opened.machines), ("family", "dtype", "library")),
        fitted=breakdown(accuracy(fitted, opened.machines), ("family", "hardware")),
        never=breakdown(accuracy(unseen, never), ("family", "hardware")),
        noise=table(("family", "machine", "dtype", "libraries", "shapes", "mean", "median", "bias"),
                    noise_floor(opened.calls)),
        models=models(),
        excluded=table(("table", "machine", "reason", "rows"), excluded),
    )  # fmt: skip
    return text, headline(rows)


TEXT = """# Accuracy of the latency model

`make accuracy` wrote this page on {date}, from public measurements made outside this project:

- sitar-lab/NeuSight @ 6945927d9afc (MIT; `neusight_*`): fp32, events around a PyTorch 2.1 call;
- ai-dynamo/aiconfigurator @ 095f58a51c4c (Apache-2.0; `aic_*`): kernels inside SGLang and TensorRT-LLM, replayed from
  CUDA graphs; collectives in queues.

The error of a row is predicted / measured - 1; the mean is the mean of its absolute value. Each row is predicted in its
own view of time, cache state and library. `perfmodel validate TABLE` judges each table again.

## Summary

The rows below have shapes that were not fitted: a hash of the sizes puts half of all shapes aside. "Calibrated" uses
the constants that ship in `hardware_specs/`, fitted on the other half. "Machine left out" uses constants fitted on
other machines: on those of its generation where there are any, else on those of its vendor and kind of memory.
"Datasheet roofline" is the error of the bound taken as a prediction.

The constants have not seen these rows, but the people who chose the formulas have. Rows and machines that nobody here
has looked at may come out somewhat worse.

{summary}

## Whole models

Inference in fp32, eager PyTorch, TF32 off. The prediction is the sum of the predicted kernels and a gap of 2 us after
each of them; the measurement is the forward pass (`scripts/whole_models.py`). No row of these was fitted.

{models}

## Rows that were not fitted, by family and machine

{unseen}

By regime: "launch" where starting the kernel, or the host, takes over half of the predicted time; otherwise "mid" below
0.1 ms and "large" above.

{regimes}

By dtype and library:

{dtypes}

## Rows that were fitted

The same figures on the fitting half. They hardly differ from those above: the constants are too few to learn rows by
heart.

{fitted}

## Each machine left out whole

{never}

## Noise floor

Two libraries differ on the same shape, machine and dtype by this much: mean and median of |first / second - 1|, and the
median of first / second - 1. A formula that does not know the library cannot do much better than half of it.

{noise}

## What is left out, and why

This page leaves out rows that their author flagged as faster than device memory; rows that are faster than physics
allows, by more than a clock can boost; rows in number formats that perfmodel does not have; rows whose size contradicts
itself; and rows that do not measure what their columns say. `perfmodel validate` leaves out only rows that are flagged
or cannot be read.

{excluded}
"""


def main() -> None:
    """Write the page and the README's figures."""
    text, figures = page(open_tables.load())
    PAGE.parent.mkdir(exist_ok=True)
    write_atomic(PAGE, text)
    before, _, rest = README.read_text(encoding="utf-8").partition(BEGIN)
    _, _, after = rest.partition(END)
    write_atomic(README, f"{before}{BEGIN}\n\n{figures}\n\n{END}{after}")


if __name__ == "__main__":
    main()
