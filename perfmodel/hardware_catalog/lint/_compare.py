"""Comparing two figures."""

from __future__ import annotations

#: relative deviation of a printed figure with three or four digits from the arithmetic
TOLERANCE = 0.005
#: a figure that exceeds a known one by more than this fraction is rounded up (312.5 for 312)
ROUNDING = 0.001
#: up to this fraction, another clock or rounding may explain the difference to a known product
DOUBTFUL = 0.05


def near(value: float, expected: float, tolerance: float = TOLERANCE) -> bool:
    """Return whether a figure equals another within a relative tolerance."""
    return abs(value - expected) <= tolerance * abs(expected)


def unit_slip(ratio: float) -> bool:
    """Return whether a ratio is a power of 1000 or 1024, as between MB, GB and TB."""
    powers = (1e-9, 1e-6, 1e-3, 1e3, 1e6, 1e9)
    return any(near(ratio, power, 0.08) for power in powers)


def deviation(value: float, expected: float) -> str:
    """Return the deviation of a figure from the expected one, for a message: ``+4.3 %`` or ``x 1000``."""
    ratio = value / expected
    if 0.6 < ratio < 1.67:
        return f"{100 * (ratio - 1):+.1f} %"
    return f"x {ratio:.3g}"
