"""The rows of long sweeps, which are predicted again a piece at a time when they are asked for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, overload

import numpy as np

from perfmodel.core.report import LongRows
from perfmodel.prediction.predict import pieces
from perfmodel.prediction.result import Prediction


class SweepRows(LongRows):
    """The rows of some predictions, one after another, as `Prediction.rows` has them, each with a name.

    A row takes kilobytes, and a hundred times as long to make as its prediction, so that memory holds those of one
    piece, and the pieces are predicted anew.
    """

    def __init__(self, predictions: Sequence[Prediction]) -> None:
        self._predictions = predictions

    def __len__(self) -> int:
        return sum(prediction.operator.points for prediction in self._predictions)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        for piece in self._pieces():
            for row in piece.rows():
                row["name"] = row["name"] or row["op"]
                yield row

    @overload
    def __getitem__(self, place: int) -> dict[str, Any]: ...

    @overload
    def __getitem__(self, place: slice) -> list[dict[str, Any]]: ...

    def __getitem__(self, place: int | slice) -> dict[str, Any] | list[dict[str, Any]]:
        places = range(len(self))[place]
        return self._row(places) if isinstance(places, int) else [self._row(one) for one in places]

    def keys(self) -> Mapping[str, Any]:
        """Return a row that has all keys of all rows, also those of the terms and of the sources of error."""
        row = dict(self[0])
        for piece in self._pieces():
            found = {
                "predicted_terms_s": piece.predicted_terms_s,
                "interval_shares": piece.uncertainty.variances(piece.regime),
                "params": piece.params,
            }
            for key, parts in found.items():
                row[key] |= {str(name): 0.0 for name, part in parts.items() if key == "params" or np.any(part)}
        return row

    def _pieces(self) -> Iterator[Prediction]:
        for prediction in self._predictions:
            if prediction.operator.points == 1:
                yield prediction
            else:
                yield from pieces(prediction.operator, prediction.machine, prediction.conditions)

    def _row(self, place: int) -> dict[str, Any]:
        for prediction in self._predictions:
            points = prediction.operator.points
            if place < points:
                (part,) = prediction.operator.parts(1, place, place + 1)
                (row,) = iter(SweepRows(list(pieces(part, prediction.machine, prediction.conditions))))
                return row
            place -= points
        raise IndexError(place)
