"""Colours, marker shapes and line styles of all plots."""

from __future__ import annotations

from collections import Counter

from matplotlib.colors import to_hex, to_rgb

#: Okabe and Ito 2008, "Color universal design": distinct with any colour vision. Their yellow is too pale on white.
COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
#: the same, followed by tints half-way to white, and by shades half-way to black (black has none)
PALETTE = (
    *COLORS,
    *(to_hex((0.5 + 0.5 * r, 0.5 + 0.5 * g, 0.5 + 0.5 * b)) for r, g, b in map(to_rgb, COLORS)),
    *(to_hex((0.5 * r, 0.5 * g, 0.5 * b)) for r, g, b in map(to_rgb, COLORS[:-1])),
)
SHAPES = ("o", "s", "^", "D", "v", "P", "X", "p", "<", ">", "h", "*", "d", "8")
CEILING_COLOR = "0.15"
DASHES = (0.0, (5.0, 3.0))
#: what the operators with the fewest points are called together
OTHERS = "other operators"


def shared_names(counts: Counter[str], most: int) -> dict[str, str]:
    """Return operator -> its name in a legend of so many entries: those with the fewest points share the last one.

    >>> shared_names(Counter(gemm=9, sort=1, scan=2), 2)
    {'gemm': 'gemm', 'sort': 'other operators', 'scan': 'other operators'}
    """
    if len(counts) <= most:
        return {op: op for op in counts}
    own = {op for op, _ in counts.most_common(most - 1)}
    return {op: op if op in own else OTHERS for op in counts}
