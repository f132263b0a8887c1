"""Calls that the power limit of a small module sets: below the boards that the law of power was chosen on."""

from __future__ import annotations

from typing import Any

from perfmodel.core.dtypes import dtype_bytes
from perfmodel.core.vocabulary import ErrorSource
from perfmodel.prediction.conditions import Conditions
from perfmodel.prediction.latency.doubts import Doubt
from perfmodel.prediction.latency.machine import Machine
from perfmodel.prediction.latency.power import TENSOR_ENERGY, VECTOR_ENERGY, is_of_few_watts, s_per_flop

#: what nobody's measurement of such modules adds (assumed): the base may take 15 to 60 % of the limit in place of the
#: 45 of the law, and the energy of a FLOP differs by a quarter, all of which shows below the knee
DEVIATION = (0.1, 0.25, 0.35)


def _limited(op: Any, machine: Machine, conditions: Conditions) -> Any:
    """Whether the power of arithmetic sets the time: it takes longer than its engine, and than the bytes that cross."""
    if not machine.engine:
        return False
    tensor, size = machine.engine == "tensor", dtype_bytes(machine.dtype)
    joule = TENSOR_ENERGY * 0.5 * size if tensor else VECTOR_ENERGY * min(1.0, 0.25 * size)
    limited_s = s_per_flop(machine, joule, conditions.load)
    if limited_s * machine.peak_flop_per_s <= 1.0:
        return False
    work = op.work()
    return work.flop * limited_s > work.least_bytes / machine.bandwidth_bytes_per_s


FEW_WATTS = Doubt(ErrorSource.POWER, _limited, DEVIATION, machines=is_of_few_watts, lasting=True)
