"""The accuracy of predictions, with its worst rows, and calibrations as reports."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from perfmodel import storage
from perfmodel.accuracy.between_nodes import NetworkFit
from perfmodel.accuracy.calibration import FamilyCalibration
from perfmodel.accuracy.fit import Fit
from perfmodel.accuracy.judge import COMPOSITION, JudgedCalls
from perfmodel.accuracy.measured import Skipped
from perfmodel.accuracy.own_rows import MachineCalibration
from perfmodel.accuracy.published import PUBLISHED_BY, PublishedRow, PublishedRuns
from perfmodel.accuracy.siblings import SiblingCalibration
from perfmodel.accuracy.validate import ALWAYS, Accuracy, label_key
from perfmodel.core.latency_table import REGIMES
from perfmodel.core.report import Column, Report, report
from perfmodel.core.saved import with_columns, with_tables
from perfmodel.core.units import format_count, format_si
from perfmodel.prediction.explain import explain
from perfmodel.prediction.latency.family import Constant

#: the figures of a group, beside its labels
FIGURES = (
    Column("rows"),
    Column("mape", "MAPE", "fraction"),
    Column("median_ape", "median", "fraction", drop=3),
    Column("p90_ape", "p90", "fraction", drop=2),
    Column("bias", unit="fraction", drop=2),
    Column("coverage_80", "coverage", "fraction", drop=1),
    Column("width_80", "width", digits=3, drop=1),
    Column("bound_mape", "roofline", "fraction"),
)
#: those of a group of published runs: a narrow table shows the rule of thumb rather than the width of the interval
_BESIDE_BASELINE = (
    *(replace(column, drop=2) if column.key == "width_80" else column for column in FIGURES[:-1]),
    Column("bound_mape", "baseline", "fraction", drop=1),
)
WORST_COLUMNS = (
    Column("place", shown=False),
    Column("row"),
    Column("op", shown=False),
    Column("dimensions"),
    Column("dtype", drop=3),
    Column("hardware"),
    Column("timing", shown=False),
    Column("cache", shown=False),
    Column("implementation", drop=4),
    Column("measured_time_s", "measured", "s"),
    Column("predicted_time_s", "predicted", "s"),
    Column("predicted_time_low_s", "low", "s", drop=1),
    Column("predicted_time_high_s", "high", "s", drop=1),
    Column("ratio", digits=3),
    Column("explanation", prose=True),
)
CALIBRATION_COLUMNS = (
    Column("family"),
    Column("library"),
    Column("constant"),
    Column("before", show_row=lambda row: format_si(row["before"], row["unit"])),
    Column("fitted", show_row=lambda row: format_si(row["fitted"], row["unit"])),
    Column("unit", shown=False),
    Column("identified"),
    Column("certainty", "posterior / prior", "fraction", shown=False),
    Column("meaning", drop=1),
)
SIBLING_COLUMNS = (
    Column("family"),
    Column("rows_of", "rows of", show_row=lambda row: ", ".join(row["rows_of"])),
    Column("regime"),
    Column("width_before", "width before", digits=3),
    Column("width_80", "width", digits=3),
    Column("deviation_before", "deviation before", digits=2, drop=1),
    Column("deviation", digits=2, drop=1),
)
_SIBLINGS = "Collectives without rows of their own"
_LEGEND = (
    "MAPE, median and p90 of |predicted / measured - 1|; bias: mean of predicted / measured - 1; coverage: share of "
    "the rows inside their stated 80 % interval; width: median of its high / low end; roofline: MAPE of the datasheet "
    "roofline."
)
_COMPOSED = f"{COMPOSITION}: calls that run several operators one after another, beside the sum of their predictions."
#: why measured rows may be faster than their bound
_TOO_FAST = (
    "the figures count them. Their data may have lain in a cache, their work be less than counted, a peak of the "
    "specification be too low, or the time not be in seconds."
)


@report.register
def _(
    accuracy: Accuracy,
    *,
    by: Sequence[str] = ALWAYS,
    worst: int = 0,
    context: Mapping[str, Any] | None = None,
) -> Report:
    """Return the accuracy by group, the rows that were left out, and the worst rows.

    Parameters
    ----------
    accuracy : the judged rows.
    by : grouping keys.
    worst : number of worst rows to list.
    context : facts for JSON.

    Raises
    ------
    UsageError
        If a key of ``by`` names no grouping.
    """
    skipped, left_out = _left_out(accuracy.skipped)
    composed = [_COMPOSED] if any(part.calls.parts for part in accuracy.judged) else []
    fast = accuracy.too_fast
    if fast is not None:
        left_out.append(f"{format_count(fast.rows, 'row')} faster than the bound (first: {fast.place}): {_TOO_FAST}")
    doubts = [
        f"{storage.name_of(place)} has times far longer than predicted: are they in {unit}? They should be in seconds."
        for place, unit in accuracy.likely_units.items()
    ]
    facts = {"skipped": skipped, "faster_than_bound": fast.rows if fast else 0, "drawn": accuracy.drawn(by)}
    return Report(
        "validate",
        _columns(by),
        accuracy.by(by),
        {"hardware": sorted({part.hardware.name for part in accuracy.judged}), **(context or {}), **facts},
        notes=(*doubts, _LEGEND, *composed, *left_out, *accuracy.notes),
        title=f"Error of the predicted time on {format_count(len(accuracy), 'measured row')}",
        more={"worst": _worst_rows(accuracy, worst)} if worst else {},
    )


def _columns(by: Sequence[str]) -> tuple[Column, ...]:
    """Return the columns of groups of measured calls."""
    extra = tuple(Column(label_key(key)) for key in dict.fromkeys(by) if key not in ALWAYS)
    return (*(Column(key, shown=key in by) for key in ALWAYS), *extra, *FIGURES)


def _run_columns(by: Sequence[str]) -> tuple[Column, ...]:
    """Return the columns of groups of published runs."""
    names = dict.fromkeys((*by, *PUBLISHED_BY))
    return (*(Column(name, shown=name in (*by, "quantity")) for name in names), *_BESIDE_BASELINE)


def saved(table: Report) -> Report:
    """Return an accuracy, or fitted constants, that were read from JSON as `validate` or `calibrate` shows them."""
    if table.command == "calibrate":
        return with_tables(with_columns(table, CALIBRATION_COLUMNS), siblings=(_SIBLINGS, SIBLING_COLUMNS))
    calls = "faster_than_bound" in table.context
    by = table.context.get("by", ALWAYS if calls else PUBLISHED_BY)
    worst = ("Worst rows", WORST_COLUMNS) if calls else ("Worst runs", PUBLISHED_WORST)
    return with_tables(with_columns(table, _columns(by) if calls else _run_columns(by)), worst=worst)


def _left_out(skipped: Sequence[Skipped]) -> tuple[list[dict[str, Any]], list[str]]:
    """Return the rows that were left out by reason, as facts for JSON and as sentences."""
    facts = [{"reason": some.reason, "rows": some.rows, "first": some.place} for some in skipped]
    return facts, [f"Left out: {some}." for some in skipped]


def _worst_rows(accuracy: Accuracy, most: int) -> Report:
    rows = [_worst_row(judged, index) for judged, index in accuracy.worst(most)]
    return Report("validate", WORST_COLUMNS, rows, title="Worst rows")


def _worst_row(judged: JudgedCalls, index: int) -> dict[str, Any]:
    """Return one measured row beside its prediction and the terms of that."""
    (point,) = explain([judged.prediction(index)])
    calls = judged.calls
    measured = float(calls.time_s[index])
    return {
        "place": f"{calls.place}:{calls.line[index]}",
        "row": f"{storage.name_of(calls.place)}:{calls.line[index]}",
        **{key: point.row[key] for key in ("op", "dtype", "hardware", "timing", "cache")},
        "dimensions": f"{point.row['op']} {point.row['dimensions']}",
        "implementation": calls.implementation,
        "measured_time_s": measured,
        "predicted_time_s": point.time_s,
        "predicted_time_low_s": point.row["predicted_time_low_s"],
        "predicted_time_high_s": point.row["predicted_time_high_s"],
        "ratio": point.time_s / measured,
        "explanation": point.largest(),
        "predicted_terms_s": dict(point.adds),
    }


#: end of the name of a quantity -> unit in which people see it; the first that fits
_UNITS = {"_bytes": "iB", "_per_s": "", "_s": "s"}


def _of_quantity(key: str, drop: int = 0) -> Column:
    """Return the column of a figure whose unit the quantity of its row says."""

    def show(row: Mapping[str, Any]) -> str:
        unit = next((unit for end, unit in _UNITS.items() if row["quantity"].endswith(end)), "")
        return Column(key, unit=unit).text(row[key])

    return Column(key, drop=drop, show_row=show)


PUBLISHED_WORST = (
    Column("place", shown=False),
    Column("run"),
    Column("quantity"),
    _of_quantity("measured"),
    _of_quantity("predicted"),
    _of_quantity("low", drop=1),
    _of_quantity("high", drop=1),
    Column("ratio", digits=3),
    Column("terms", prose=True),
)


@report.register
def _(
    runs: PublishedRuns,
    *,
    by: Sequence[str] = PUBLISHED_BY,
    worst: int = 0,
    context: Mapping[str, Any] | None = None,
    notes: Sequence[str] = (),
) -> Report:
    """Return the error on published runs by group, the runs that were left out, and the worst ones.

    Parameters
    ----------
    runs : the judged runs.
    by : grouping keys.
    worst : number of worst runs to list.
    context : facts for JSON.
    notes : further sentences for people.

    Raises
    ------
    UsageError
        If a key of ``by`` names no grouping.
    """
    skipped, left_out = _left_out(runs.skipped)
    legend = _LEGEND.replace("roofline: MAPE of the datasheet roofline", f"baseline: MAPE of {runs.baseline}")
    return Report(
        "validate",
        _run_columns(by),
        runs.by(by),
        {"hardware": sorted({row.label("hardware") for row in runs.rows}), **(context or {}), "skipped": skipped}
        | {"drawn": runs.drawn(by)},
        notes=(legend, *left_out, *notes),
        title=f"Error of the prediction on {format_count(len(runs), 'published figure')}",
        more={"worst": _worst_runs(runs, worst)} if worst else {},
    )


def _worst_runs(runs: PublishedRuns, most: int) -> Report:
    return Report("validate", PUBLISHED_WORST, [_worst_run(row) for row in runs.worst(most)], title="Worst runs")


def _worst_run(row: PublishedRow) -> dict[str, Any]:
    return {
        "place": row.place,
        "run": row.name,
        **{name: getattr(row, name) for name in ("quantity", "measured", "predicted", "low", "high", "ratio")},
        "terms": ", ".join(f"{name} {format_si(value, 's')}" for name, value in row.terms.items()),
        "predicted_terms": dict(row.terms),
    }


@report.register
def _(
    calibration: MachineCalibration, *, context: Mapping[str, Any] | None = None, notes: Sequence[str] = ()
) -> Report:
    """Return one row per constant; ``identified`` is false for one that keeps its value from before.

    Parameters
    ----------
    calibration : the calibration of a machine.
    context : facts for JSON.
    notes : further sentences for people.
    """
    hardware = calibration.before
    summaries = [sentence for family in calibration.families for sentence in _summary(family)]
    if calibration.network:
        summaries.append(_of_network(calibration.network))
    unused = [f"Not used: {format_count(rows, 'row')} {reason}." for reason, rows in calibration.unused.items()]
    return Report(
        "calibrate",
        CALIBRATION_COLUMNS,
        [
            *(row for family in calibration.families for row in _constant_rows(family)),
            *(_network_rows(calibration.network) if calibration.network else ()),
        ],
        {**(context or {}), "hardware": [hardware.name]},
        (*summaries, *notes, *unused),
        f"Latency constants of {hardware.title}",
        more={"siblings": _siblings(calibration.siblings)} if calibration.siblings else {},
    )


def _of_network(fit: NetworkFit) -> str:
    return (
        f"network: {format_count(fit.rows, 'row')} between nodes; off by {fit.off:.1%} in the mean, "
        f"{fit.off_before:.1%} before; of sizes that were left out the standard deviation is "
        f"{fit.fabric.deviation or 0.0:.1%}."
    )


def _network_rows(fit: NetworkFit) -> Iterator[dict[str, Any]]:
    """Yield the figures of the network between nodes."""
    for name, unit, meaning in (
        ("nic_efficiency", "", "share of a network's rate that large messages reach"),
        ("alpha_s", "s", "time of a step between nodes"),
    ):
        before, fitted = getattr(fit.before, name), getattr(fit.fabric, name)
        yield {
            "family": "network", "library": "", "constant": name.removesuffix("_s"), "before": before,
            "fitted": fitted, "unit": unit, "identified": fitted != before, "certainty": None, "meaning": meaning,
        }  # fmt: skip


def _siblings(calibrations: Sequence[SiblingCalibration]) -> Report:
    """Return what rows of some collectives say about the others: one row for each of these and each regime."""
    rows = [
        {
            "family": one.family.name,
            "rows_of": list(one.siblings),
            "regime": regime,
            "width_before": one.width(regime, after=False),
            "width_80": one.width(regime, after=True),
            "deviation_before": one.deviation(regime, after=False),
            "deviation": one.deviation(regime, after=True),
        }
        for one in calibrations
        for regime in REGIMES
    ]
    legend = (
        "Width: high over low end of the 80 % interval; deviation: what this machine may differ by in "
        "ln(measured / predicted). Collectives of one machine differ alike, so that rows of some tell the others."
    )
    return Report("calibrate", SIBLING_COLUMNS, rows, notes=(legend,), title=_SIBLINGS)


def _constant_rows(calibration: FamilyCalibration) -> Iterator[dict[str, Any]]:
    """Yield the shared constants that were fitted, then those of each library."""
    constants = {constant.name: constant for constant in calibration.family.table_constants}
    for name in calibration.fit.certainty:
        before = calibration.start.get(name, constants[name].default)
        yield _constant_row(calibration, constants[name], "", before, calibration.fit)
    if calibration.stays:
        return
    for library, fit in calibration.library_fits.items():
        for name in fit.identified():
            yield _constant_row(calibration, constants[name], library, calibration.fit.values[name], fit)


def _constant_row(
    calibration: FamilyCalibration, constant: Constant, library: str, before: float, fit: Fit
) -> dict[str, Any]:
    return {
        "family": calibration.family.name,
        "library": library,
        "constant": constant.name,
        "before": before,
        "fitted": before if calibration.stays else fit.values[constant.name],
        "unit": constant.unit,
        "identified": constant.name not in fit.unidentified and not calibration.stays,
        "certainty": fit.certainty[constant.name],
        "meaning": constant.meaning,
    }


def _summary(calibration: FamilyCalibration) -> Iterator[str]:
    """Yield the error of one family, and the constants that its rows do not identify."""
    stays = " These stay, with intervals that the rows show." if calibration.stays else ""
    yield (
        f"{calibration.family.name}: {format_count(calibration.rows, 'row')}; off by a factor of "
        f"{calibration.off:.3f} in the mean on rows that were not fitted, "
        f"{calibration.off_before:.3f} with the constants before.{stays}"
    )
    unidentified = calibration.fit.unidentified
    if unidentified and not calibration.stays:
        yield f"{calibration.family.name}: the rows do not identify {', '.join(unidentified)}, which stay as before."
