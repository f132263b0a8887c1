"""Comparing two figures: how near they are, and what a round factor between them tells."""

from __future__ import annotations

#: a printed figure of three or four digits agrees with the arithmetic to this fraction
TOLERANCE = 0.005
#: above a known figure by more than this, a figure is rounded up (312.5 for 312)
ROUNDING = 0.001
#: under this fraction the difference to a known product may be another clock or rounding
DOUBTFUL = 0.05


def near(value: float, expected: float, tolerance: float = TOLERANCE) -> bool:
    """Tell whether a figure is another within a fraction of it."""
    return abs(value - expected) <= tolerance * abs(expected)


def unit_slip(ratio: float) -> bool:
    """Tell whether a ratio is a power of 1000 (or 1024), as between MB, GB and TB."""
    powers = (1e-9, 1e-6, 1e-3, 1e3, 1e6, 1e9)
    return any(near(ratio, power, 0.08) for power in powers)


def deviation(value: float, expected: float) -> str:
    """Return how far a figure is from what is expected, for a message: ``+4.3 %`` or ``x 1000``."""
    ratio = value / expected
    if 0.6 < ratio < 1.67:
        return f"{100 * (ratio - 1):+.1f} %"
    return f"x {ratio:.3g}"
