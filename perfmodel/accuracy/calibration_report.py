"""What a calibration found, as a report: each constant before and after, and what the rows could not tell."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from perfmodel.accuracy.calibration import Calibration
from perfmodel.accuracy.fit import Fit
from perfmodel.core.hardware import Hardware
from perfmodel.core.report import Column, Report
from perfmodel.core.units import format_si
from perfmodel.prediction.latency.family import Constant

COLUMNS = (
    Column("family"),
    Column("library"),
    Column("constant"),
    Column("before", shown=False),
    Column("fitted", shown=False),
    Column("unit", shown=False),
    Column("before_text", "before"),
    Column("fitted_text", "fitted"),
    Column("identified"),
    Column("certainty", "left of the prior", "fraction", shown=False),
    Column("meaning", drop=1),
)


def calibration_report(
    hardware: Hardware, calibrations: Sequence[Calibration], notes: Sequence[str], context: Mapping[str, Any]
) -> Report:
    """Return one row a constant; ``identified`` is false for one that keeps its value from before."""
    rows = [row for calibration in calibrations for row in _rows(calibration)]
    said = [sentence for calibration in calibrations for sentence in _sentences(calibration)]
    return Report(
        "calibrate",
        COLUMNS,
        rows,
        {**context, "hardware": [hardware.name]},
        (*said, *notes),
        f"Latency constants of {hardware.title}",
    )


def _rows(calibration: Calibration) -> Iterator[dict[str, Any]]:
    known = {constant.name: constant for constant in calibration.family.all_constants}
    for name in calibration.fit.certainty:
        yield _row(calibration, known[name], "", calibration.start[name], calibration.fit)
    for library, own in calibration.table.libraries.items():
        for name in own:
            before = calibration.fit.values[name]
            yield _row(calibration, known[name], library, before, calibration.library_fits[library])


def _row(calibration: Calibration, constant: Constant, library: str, before: float, fit: Fit) -> dict[str, Any]:
    fitted = fit.values[constant.name]
    return {
        "family": calibration.family.name,
        "library": library,
        "constant": constant.name,
        "before": before,
        "fitted": fitted,
        "unit": constant.unit,
        "before_text": format_si(before, constant.unit),
        "fitted_text": format_si(fitted, constant.unit),
        "identified": constant.name not in fit.unidentified,
        "certainty": fit.certainty[constant.name],
        "meaning": constant.meaning,
    }


def _sentences(calibration: Calibration) -> Iterator[str]:
    error = float(np.mean(np.abs(np.expm1(calibration.log_ratio))))
    yield (
        f"{calibration.family.name}: {calibration.rows} rows; mean absolute error {error:.1%} on rows that a fit had "
        f"not seen, {calibration.error_before:.1%} with the constants before."
    )
    kept = calibration.fit.unidentified
    if kept:
        yield f"{calibration.family.name}: the rows do not identify {', '.join(kept)}: kept as before."
