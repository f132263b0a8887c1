"""The judged rows that a page draws: few enough for JSON, of every group, the same ones each time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from perfmodel.accuracy.judge import Floats

#: rows that are drawn; of more rows a sample
MOST_DRAWN = 500


def drawn_facts(
    names: Sequence[str], codes: NDArray[np.intp], figures: Sequence[Floats], quantities: Sequence[str] = ()
) -> dict[str, Any]:
    """Return judged rows for a drawing, as facts for JSON.

    Parameters
    ----------
    names : of the groups.
    codes : index of the group of each row.
    figures : measured, predicted, low and high of each row [unit of its quantity]; no number where no interval is
        stated.
    quantities : of each group; none where all are times [s].

    Returns
    -------
    groups, quantities : name and quantity of each group that has rows among those that are drawn.
    rows : number of all rows.
    group, measured, predicted, low, high : of each row that is drawn, as numbers with blanks between them: lists would
        fill the screen of who reads the JSON. Figures have four digits.
    """
    kept = _sample(codes)
    present, places = np.unique(codes[kept], return_inverse=True)
    columns = {
        name: " ".join(f"{value:.4g}" for value in column[kept])
        for name, column in zip(("measured", "predicted", "low", "high"), figures, strict=True)
    }
    return {
        "groups": [names[at] for at in present],
        "quantities": [quantities[at] if quantities else "time_s" for at in present],
        "rows": int(codes.size),
        "group": " ".join(map(str, places.ravel().tolist())),
        **columns,
    }


def group_name(labels: Mapping[str, str]) -> str:
    """Return the name of a group: its labels, those that are numbers behind their keys.

    >>> group_name({"family": "gemm_bf16", "m": "64"}), group_name({})
    ('gemm_bf16 m=64', 'all rows')
    """
    words = [f"{key.removeprefix('params.')}={text}" if _is_number(text) else text for key, text in labels.items()]
    return " ".join(filter(None, words)) or "all rows"


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _sample(codes: NDArray[np.intp]) -> NDArray[np.intp]:
    """Return the rows to draw in their order: as many of each group, as far as it has them.

    >>> _sample(np.array([0] * 1000 + [1] * 3)).size
    500
    """
    if codes.size <= MOST_DRAWN:
        return np.arange(codes.size)
    order = np.random.default_rng(0).permutation(codes.size)
    order = order[np.argsort(codes[order], kind="stable")]
    starts = np.flatnonzero(np.diff(codes[order], prepend=codes[order[0]] - 1))
    turn = np.arange(codes.size) - np.repeat(starts, np.diff(np.append(starts, codes.size)))
    return np.sort(order[np.argsort(turn, kind="stable")[:MOST_DRAWN]])
