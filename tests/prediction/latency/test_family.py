"""What holds for the constants of every family, whatever their values."""

from __future__ import annotations

import pytest

from perfmodel.prediction.latency import families
from perfmodel.prediction.latency.family import Constant

CONSTANTS = [
    pytest.param(constant, id=f"{name}-{constant.name}")
    for name in families.family_names()
    for constant in families.family(name).all_constants
]


@pytest.mark.parametrize("constant", CONSTANTS)
def test_a_constant_starts_within_its_limits_and_its_logarithm_has_a_spread(constant: Constant) -> None:
    """A fit takes logarithms, and weighs the default by 1 / spread^2."""
    assert 0 < constant.low <= constant.default <= constant.high
    assert 0 < constant.spread <= 1  # a factor of e between machines says nothing
    assert constant.meaning
    if constant.unit == "s":  # a launch, a dispatch or a step of a kernel, never the kernel itself
        assert constant.high <= 1e-3
    if constant.meaning.startswith("share of"):  # a little over 1 where the datasheet rounds its figure down
        assert constant.high <= 1.05
