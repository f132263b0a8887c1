"""The gradients of attention: the blocks of the forward pass, with five products in place of two.

Nothing is fitted: no table has rows of it. The constants are those of the forward pass on the machine.
"""

from __future__ import annotations

from typing import cast

from perfmodel.operators.attention import Attention
from perfmodel.operators.base import Operator
from perfmodel.prediction.conditions import Conditions
from perfmodel.prediction.latency.attention import prefill
from perfmodel.prediction.latency.constants import constants
from perfmodel.prediction.latency.family import Constant, Family, Values
from perfmodel.prediction.latency.machine import Machine
from perfmodel.prediction.latency.terms import HBM, LAUNCH, Terms

#: FLOP of the gradients over those of the forward pass
PRODUCTS = 2.5
#: kernels: the sums of o and do of a row, the gradients, and their conversion from fp32 (flash-attention 2)
KERNELS = 3.0
CONSTANTS = (
    Constant("slower", "", 1.15, 1.0, 2.0, 0.15, "rate of the forward pass over that of the gradients (assumed)"),
)


def formula(op: Operator, machine: Machine, c: Values, conditions: Conditions) -> Terms:
    """Return the terms of the forward pass, its blocks 2.5 ``slower`` times as long, and its traffic as it is counted.

    Three kernels start instead of one.
    """
    attention = cast(Attention, op)
    forward = attention.changed(backward=False)
    family = prefill.PREFILL
    values: Values = {constant.name: constant.default for constant in family.all_constants}
    if machine.hardware is not None:
        values = constants(family, machine.hardware, conditions.library, op.dtype).values
    terms = prefill.formula(forward, machine, values, conditions)
    traffic = op.work().bytes / forward.work().bytes
    factors = {HBM: traffic, LAUNCH: KERNELS}
    usual = PRODUCTS * c["slower"]
    return Terms(
        {term: value * factors.get(term, usual) for term, value in terms.adds.items()},
        {term: value * factors.get(term, usual) for term, value in terms.alone.items()},
    )


def applies(op: Attention, machine: Machine, library: str) -> bool:
    """Whether it is a backward pass."""
    return op.backward


BACKWARD = Family("attention_backward", CONSTANTS, formula, prefill.PREFILL.terms, applies)
