"""Products on boards of a low power limit that nobody measured: how much energy a FLOP takes there sets their rate."""

from __future__ import annotations

from typing import Any

from perfmodel.core.dtypes import dtype_bytes
from perfmodel.core.hardware import Hardware
from perfmodel.core.vocabulary import ErrorSource
from perfmodel.operators.gemm import Gemm
from perfmodel.prediction.conditions import Conditions
from perfmodel.prediction.latency.doubts import Doubt
from perfmodel.prediction.latency.machine import Machine
from perfmodel.prediction.latency.power import TENSOR_ENERGY, limited_share

#: the end of the 80 % interval of a board's energy over `TENSOR_ENERGY`: ln of what is fitted to L40S,
#: RTX 4090, H100, H200 and B200 (0.95, 0.54, 0.55, 0.55, 0.53 pJ) has a standard deviation of 0.25. A clock that it
#: brings below the knee keeps at most this share; above the knee a lower voltage makes up for most of the loss
HIGHER, LEFT = 1.4, 0.85
#: what that deviation adds to the time where the clock is below the knee, nearly all of it in large products
DEVIATION = (0.05, 0.15, 0.22)


def _has_no_rows(hardware: Hardware) -> bool:
    return not any(name.startswith("gemm_") and name != "gemm_fp32" for name in hardware.latency)


def _starved(op: Any, machine: Machine, conditions: Conditions) -> Any:
    """Whether the power limit of a board without rows sets the time of a product: below its clock's knee.

    Products whose operands take longer to cross device memory than to multiply wait for that instead. The energy of
    AMD's matrix cores is known from its own products (`MFMA_ENERGY`).
    """
    if not isinstance(op, Gemm) or machine.engine != "tensor" or machine.matrix_instruction == "mfma":
        return False
    key = (_starved, dtype_bytes(op.dtype))
    if key not in machine.cache:
        joule = TENSOR_ENERGY * 0.5 * dtype_bytes(op.dtype)
        at_least, likely = (float(limited_share(machine, factor * joule)) for factor in (HIGHER, 1.0))
        below = at_least < min(1.0, LEFT * likely)
        machine.cache[key] = likely * machine.peak_flop_per_s / machine.bandwidth_bytes_per_s if below else 0.0
    ridge: float = machine.cache[key]
    if not ridge:
        return False
    a, b, c = (dtype_bytes(dtype) for dtype in (op.dtype, op.weight_dtype, op.out_dtype))
    return 2.0 * op.m * op.n * op.k > ridge * (a * op.m * op.k + b * op.k * op.n + c * op.m * op.n)


STARVED = Doubt(ErrorSource.POWER, _starved, DEVIATION, machines=_has_no_rows)
