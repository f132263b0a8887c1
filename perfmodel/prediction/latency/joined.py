"""The estimates of the parts of a long sweep as one."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from perfmodel.core.latency_table import REGIMES
from perfmodel.core.vocabulary import ErrorSource
from perfmodel.core.work import Text
from perfmodel.prediction.latency.estimate import Ends, Estimate, Spread
from perfmodel.prediction.uncertainty import Uncertainty


def joined(
    parts: Iterable[Estimate],
    shape: tuple[int, ...],
    floor_s: NDArray[np.float64],
    again: Callable[[], Iterable[Estimate]],
) -> Estimate:
    """Return the estimates of the parts of a long sweep as one of some shape, without their terms, which ``again`` has.

    The columns are filled as the parts come, so that memory holds one part beside them; ``floor_s`` [s] has been by
    then.
    """
    points, start = math.prod(shape), 0
    time_s, code, which = np.empty(points), np.empty(points, np.int8), np.empty(points, np.int8)
    texts: dict[str, list[tuple[Text, int]]] = {"family": [], "calibration": []}
    ends: dict[Ends, int] = {}
    of_points: list[NDArray[np.float64]] = []
    bases: dict[str, None] = {}
    sources: list[tuple[slice, Uncertainty]] = []
    for part in parts:
        size = np.size(part.time_s)
        places = slice(start, start := start + size)
        time_s[places], code[places] = part.time_s, part.regime_code
        if part.spread.is_of_points:
            of_points = of_points or [np.empty(points), np.empty(points)]
            for column, end in zip(of_points, part.spread.ends[0], strict=True):
                column[places] = end
        else:
            known = [ends.setdefault(pair, len(ends)) for pair in part.spread.ends]
            which[places] = np.array(known, np.int8).take(part.spread.code)
        for name, pieces in texts.items():
            pieces.append((getattr(part, name), size))
        bases[part.basis] = None
        sources.append((places, part.uncertainty))
    if of_points:
        low, high = (column.reshape(shape) for column in of_points)
        spread = Spread(0, ((low, high),), floor_s.reshape(shape))
    else:
        spread = Spread(which.reshape(shape), tuple(ends), floor_s.reshape(shape))
    return Estimate(
        time_s=time_s.reshape(shape),
        spread=spread,
        regime_code=code.reshape(shape),
        family=_joined_text(texts["family"], shape),
        calibration=_joined_text(texts["calibration"], shape),
        basis="; ".join(bases),
        uncertainty=_joined_uncertainty(sources, shape),
        kept_terms=None,
        again=again,
    )


def _joined_text(pieces: Sequence[tuple[Text, int]], shape: tuple[int, ...]) -> Text:
    """Return the names of the parts as one: a single name where all of them have it."""
    names = {text if isinstance(text, str) else None for text, _ in pieces}
    if len(names) == 1 and None not in names:
        return pieces[0][0]
    return np.concatenate([np.broadcast_to(text, size) for text, size in pieces]).reshape(shape)


def _joined_uncertainty(pieces: Sequence[tuple[slice, Uncertainty]], shape: tuple[int, ...]) -> Uncertainty:
    """Return the sources of error of the parts as one; parts of one family share its variances."""
    if any(np.ndim(value) for _, piece in pieces for _, found in piece.parts for value, *_ in found.values()):
        return _uncertainty_of_points(pieces, shape)
    variances = {id(found): found for _, piece in pieces for _, found in piece.parts}
    if len(variances) == 1:
        return pieces[0][1]
    masks = {key: np.zeros(math.prod(shape), dtype=bool) for key in variances}
    for places, piece in pieces:
        free: Any = True
        for mask, found in piece.parts:
            masks[id(found)][places] |= mask & free
            free = free & np.logical_not(mask)
    return Uncertainty(tuple((masks[key].reshape(shape), found) for key, found in variances.items()))


def _uncertainty_of_points(pieces: Sequence[tuple[slice, Uncertainty]], shape: tuple[int, ...]) -> Uncertainty:
    """Return the sources of error of parts whose points each have variances of their own."""
    points = math.prod(shape)
    columns: dict[ErrorSource, tuple[NDArray[np.float64], ...]] = {}
    for places, piece in pieces:
        free: Any = True
        for mask, found in piece.parts:
            here = np.broadcast_to(free & np.asarray(mask), np.zeros(points, bool)[places].shape)
            for source, variances in found.items():
                of_regimes = columns.setdefault(source, tuple(np.zeros(points) for _ in REGIMES))
                for column, variance in zip(of_regimes, variances, strict=True):
                    column[places] = np.where(here, variance, column[places])
            free = free & np.logical_not(mask)
    kept = {source: tuple(column.reshape(shape) for column in found) for source, found in columns.items()}
    return Uncertainty(((True, kept),))
