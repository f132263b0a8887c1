"""Write docs/accuracy*.md, and some of their figures in README.md: how well the latency model does on public rows.

    python scripts/accuracy.py          (or: make accuracy)

Rows on which the shipped constants were fitted and rows that they have not seen stand apart (`open_tables.FITTED`).
Then each machine, and each library, is left out of the fit and of the interval (`nested`).
"""

from __future__ import annotations

import argparse
import datetime
import itertools
import textwrap
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import blind_draws
import fit_training
import laboratories
import numpy as np
import open_tables
import serving_accuracy
import whole_models
from accuracy_lines import QUOTED, QUOTED_HEAD, SUMMARY, SUMMARY_HEAD, Keep, table
from accuracy_text import TABLES, TEXT
from nested import Nested, without
from published_text import PUBLISHED

from perfmodel import hardware_catalog
from perfmodel.accuracy.judge import JudgedCalls
from perfmodel.accuracy.measured import MeasuredCalls, Measurements
from perfmodel.accuracy.report import FIGURES
from perfmodel.accuracy.validate import Accuracy, judge
from perfmodel.core.hardware import Hardware
from perfmodel.core.units import format_si
from perfmodel.files import write_atomic
from perfmodel.operators.gemm import Gemm
from perfmodel.render.plots.accuracy import coverage_plot

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "accuracy.md"
TABLES_PAGE, PUBLISHED_PAGE = (ROOT / "docs" / f"accuracy_{name}.md" for name in ("tables", "published"))
PLOT = ROOT / "docs" / "coverage.png"
README = ROOT / "README.md"
BEGIN, END = "<!-- accuracy: written by scripts/accuracy.py -->", "<!-- end of accuracy -->"

Calls = Sequence[MeasuredCalls]

#: levels of the intervals of the plot
LEVELS = (0.5, 0.8, 0.95)


def accuracy(calls: Calls, machines: Mapping[str, Hardware]) -> Accuracy:
    """Judge some calls on some machines."""
    return judge([Measurements("open tables", tuple(calls))], machines.__getitem__)


def subset(found: Accuracy, family: str, names: tuple[str, ...], keep: Keep) -> Accuracy:
    """Return the rows of a line of the summary."""

    def chosen(part: JudgedCalls) -> Any:
        return (not names or part.calls.hardware in names) & np.asarray(part.family == family) & keep(part.calls)

    return found.where(chosen)


def _belongs(call: MeasuredCalls, family: str) -> Any:
    """Return which rows belong to a family."""
    if call.op.kernel_dtype != call.op.dtype or "block" in call.op.params().get("scale", ""):
        return False  # families of one library each, or with kernels that do not compare
    if call.op.op == "gemm":
        eight = call.op.dtype in ("fp8", "int8", "fp4") and call.library.startswith(Gemm.QUANTISING)
        return family == ("gemm_fp32" if call.op.dtype == "fp32" else "gemm_fp8" if eight else "gemm_bf16")
    if call.op.op == "attention" and family.startswith("attention"):
        queries, keys = (np.asarray(call.op.params()[name]) for name in ("seq_q", "seq_kv"))
        return ((queries == 1) & (keys > 1)) == (family == "attention_decode")
    return call.op.op == family


def summary(known: Accuracy, nested: Nested) -> list[list[str]]:
    """Return the lines of the summary: the roofline; calibrated, machine left out, library left out."""
    rows = []
    for title, family, names, keep in SUMMARY:
        parts = [subset(found, family, names, keep) for found in
                 (known, nested.left_out("machine"), nested.left_out("library"))]  # fmt: skip
        calibrated = _score(parts[0])
        if calibrated is None:
            continue
        cells = [title, f"{calibrated['rows']}", _percent(calibrated["bound_mape"])]
        for score in map(_score, parts):
            cells += ["-"] * 3 if score is None else [
                _percent(score["mape"]), _percent(score["coverage_80"]), f"{score['width_80']:.2f}",
            ]  # fmt: skip
        rows.append(cells)
    return rows


def _score(found: Accuracy) -> dict[str, Any] | None:
    return found.by([])[-1] if found.judged else None


def spread(nested: Nested, kind: str) -> str:
    """Return a sentence on the coverage of the intervals over tables: one for each family and machine or library."""
    names = ("family", "hardware") if kind == "machine" else ("family", "library", "hardware")
    *parts, every = nested.left_out(kind).by(names)
    tables = [row for row in parts if "all" not in (row[name] for name in names)]
    covered = np.array([row["coverage_80"] for row in tables])
    widths = np.array([row["width_80"] for row in tables])
    return (
        f"With each {kind} left out, the 80 % interval holds {100 * covered.mean():.0f} % of the rows in the mean over "
        f"{covered.size} tables (standard deviation {100 * covered.std():.0f} points, {(covered < 0.5).sum()} below "
        f"50 %, the lowest {100 * covered.min():.0f} %); the median width, high over low, is {np.median(widths):.2f} "
        f"over tables and {every['width_80']:.2f} over rows."
    )


def levels(found: Mapping[str, Accuracy]) -> str:
    """Return the table of stated and observed levels, and draw it."""
    observed = {name: [accuracy.coverage(level) for level in LEVELS] for name, accuracy in found.items()}
    coverage_plot(LEVELS, observed).savefig(PLOT, dpi=110)
    return table(
        ("stated", *(f"{level:.0%}" for level in LEVELS)),
        [[name, *map(_percent, values)] for name, values in observed.items()],
    )


def headline(rows: Sequence[Sequence[str]]) -> str:
    """Return the figures that the README quotes, from lines of the summary."""
    by_title = {row[0]: row for row in rows}
    quoted = [
        [name, by_title[title][1], by_title[title][2], *by_title[title][6:9], *by_title[title][3:6]]
        for title, name in QUOTED.items()
        if title in by_title
    ]
    return table(QUOTED_HEAD, quoted)


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


def breakdown(found: Accuracy, keys: Sequence[str]) -> str:
    """Return the Markdown table of `Accuracy.by`, as `perfmodel validate` prints it."""
    rows = [[str(row[key]) for key in keys] + [c.text(row[c.key]) for c in FIGURES] for row in found.by(keys)]
    return table([*keys, *(column.heading for column in FIGURES)], rows)


def own(end: str) -> Accuracy:
    """Judge our own records whose names end so, and that nothing is fitted on."""
    return judge(open_tables.judge_records(end), hardware_catalog.hardware)


def blind_sentence(drawn: Sequence[blind_draws.Draw]) -> str:
    """Return what the README says of operators that were drawn at random: the last ones, before a look at them."""
    last = drawn[-1]
    mean, inside, width = last.then.cells()
    return (
        f"{last.then.rows} calls of PyTorch 2.11 on an H200, on which no constant was fitted, were drawn at random: "
        f"all dtypes and operators, odd sizes among them. Before anybody had looked at them, they came out {mean} off, "
        f"with {inside} in the 80 % interval at a width of {width}; the datasheet roofline is "
        f"{100 * last.roofline:.1f} % off (`examples/records`)."
    )


def models(nested: Nested, machines: Mapping[str, Hardware]) -> str:
    """Return the part on whole models: measured and predicted forward passes, with each machine and without it."""
    folder = open_tables.folder().parent
    known = whole_models.comparison(folder, whole_models.MACHINES.values())
    lines, errors = [], defaultdict(list)
    for name in dict.fromkeys(row.hardware for row in known):
        with without(name, nested.fits, {**machines, name: hardware_catalog.hardware(name)}) as altered:
            never = whole_models.comparison(folder, [name], altered.__getitem__)
        for row, other in zip([row for row in known if row.hardware == name], never, strict=True):
            lines.append([
                row.hardware, row.model, f"{row.batch}", f"{row.seq}", format_si(row.measured_s, "s"),
                *_model_cells(row), *_model_cells(other),
            ])  # fmt: skip
            errors[name].append((row, other))
    head = ("machine", "model", "batch", "sequence", "measured", "predicted", "error", "80 % interval",
            "machine left out", "error", "80 % interval")  # fmt: skip
    means = [[name, f"{len(pairs)}", *_model_mean([row for row, _ in pairs]), *_model_mean([row for _, row in pairs])]
             for name, pairs in errors.items()]  # fmt: skip
    mean_head = ("machine", "runs", "mean error", "in the interval", "machine left out: mean error", "in the interval")
    return f"{table(mean_head, means)}\n\n{table(head, lines)}"


def _model_cells(row: whole_models.Row) -> list[str]:
    interval = f"{format_si(row.predicted.low_s, 's', 3)} to {format_si(row.predicted.high_s, 's', 3)}"
    return [format_si(row.predicted.time_s, "s"), f"{100 * row.error:+.1f} %", interval]


def _model_mean(rows: Sequence[whole_models.Row]) -> list[str]:
    inside = sum(row.predicted.low_s <= row.measured_s <= row.predicted.high_s for row in rows)
    return [_percent(whole_models.mean_error(rows)), f"{inside} of {len(rows)}"]


def exclusions(opened: open_tables.OpenTables) -> str:
    """Return what each rule leaves out, and the error of the tables with and without these rows."""
    kept = open_tables.half(opened.calls, fitted=False)
    out = open_tables.half(opened.left_out, fitted=False)
    names = dict.fromkeys(call.place for call in out)
    rows = []
    for place in names:
        without_them, with_them = (
            accuracy([call for call in calls if call.place == place], opened.machines).by([])[-1]
            for calls in (kept, [*kept, *out])
        )
        cells = [Path(place).name.removesuffix(".csv.gz")]
        for score in (without_them, with_them):
            cells += [f"{score['rows']}", _percent(score["mape"]), _percent(score["coverage_80"])]
        rows.append(cells)
    return table(("table", "rows", "mean", "in the interval", "with all rows", "mean", "in the interval"), rows)


def pages(opened: open_tables.OpenTables) -> tuple[dict[Path, str], str]:
    """Return the pages, and the figures for the README."""
    fitted, unseen = (open_tables.half(opened.calls, fitted=fit) for fit in (True, False))
    nested = Nested.of(opened, unseen)
    known = accuracy(unseen, opened.machines)
    never, foreign = nested.left_out("machine"), nested.left_out("library")
    rows = summary(known, nested)
    drawn = blind_draws.draws()
    others, of_torch = laboratories.parts()
    excluded = [[name, machine or "any", reason, f"{rows}"] for name, machine, reason, rows in opened.excluded]
    filled = dict(
        date=datetime.date.today().isoformat(),
        summary=table(SUMMARY_HEAD, rows),
        machines=spread(nested, "machine"),
        libraries=spread(nested, "library"),
        levels=levels({"calibrated": known, "machine left out": never, "library left out": foreign}),
        unseen=breakdown(known, ("family", "hardware")),
        regimes=breakdown(known, ("family", "regime")),
        dtypes=breakdown(known, ("family", "dtype", "library")),
        fitted=breakdown(accuracy(fitted, opened.machines), ("family", "hardware")),
        never=breakdown(never, ("family", "hardware")),
        foreign=breakdown(foreign, ("family", "library", "hardware")),
        noise=table(("family", "machine", "dtype", "libraries", "shapes", "mean", "median", "bias"),
                    noise_floor(opened.calls)),
        models=models(nested, opened.machines),
        **others,
        draws=table(blind_draws.HEAD, [draw.cells() for draw in drawn]),
        compositions=table(blind_draws.HEAD, [draw.cells() for draw in blind_draws.compositions()]),
        calibrated=table(blind_draws.CALIBRATED_HEAD, blind_draws.calibrated()),
        blind=breakdown(own(list(blind_draws.DRAWS)[-1]), ("hardware", "family")),
        neighbours=breakdown(own("_neighbours"), ("hardware", "family")),
        own=breakdown(own("-11-23"), ("hardware", "family")),
        tables=exclusions(opened),
        excluded=table(("table", "machine", "reason", "rows"), excluded),
    )  # fmt: skip
    texts = {PAGE: TEXT, TABLES_PAGE: TABLES, PUBLISHED_PAGE: PUBLISHED}
    said = (textwrap.fill(one, 120) for one in (blind_sentence(drawn), of_torch))
    return {path: text.format_map(filled) for path, text in texts.items()}, "\n\n".join((headline(rows), *said))


def main() -> None:
    """Write the pages and the README's figures."""
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    texts, figures = pages(open_tables.load())
    PAGE.parent.mkdir(exist_ok=True)
    for path, text in texts.items():
        write_atomic(path, text)
    serving_accuracy.write(PAGE)
    fit_training.write_chapter(PAGE)
    before, _, rest = README.read_text(encoding="utf-8").partition(BEGIN)
    _, _, after = rest.partition(END)
    write_atomic(README, f"{before}{BEGIN}\n\n{figures}\n\n{END}{after}")


if __name__ == "__main__":
    main()
