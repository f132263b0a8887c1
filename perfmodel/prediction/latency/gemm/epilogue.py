"""The activation of a product's outputs: in the epilogue of its kernel, or in a call of its own."""

from __future__ import annotations

from types import MappingProxyType

from perfmodel.core.dtypes import dtype_bytes
from perfmodel.core.vocabulary import Limiter
from perfmodel.core.work import Number
from perfmodel.operators.gemm import Gemm
from perfmodel.prediction.conditions import Conditions
from perfmodel.prediction.latency.family import Values
from perfmodel.prediction.latency.gemm.rates import launch_s
from perfmodel.prediction.latency.machine import Machine
from perfmodel.prediction.latency.terms import Term

EPILOGUE = Term("epilogue", Limiter.COMPUTE, "activation of the outputs, which no multiplication hides")
#: libraries that activate outputs in a call of its own: torch.nn.functional.linear and what follows it
APART = ("torch",)
#: cycles of one fp32 lane for the activation of an output in a product's epilogue. gelu: own measurement on H100, where
#: it adds 56 to 59 us to three Triton products of 8192 x 8192 outputs (2026-11-23). The others, of an exponential and a
#: division, each by a special-function unit of an eighth of the lanes: assumed
ACTIVATION_CYCLES = MappingProxyType({"relu": 2.0, "gelu": 30.0, "silu": 25.0, "sigmoid": 25.0, "tanh": 25.0})


def epilogue_s(gemm: Gemm, machine: Machine, c: Values, conditions: Conditions) -> Number:
    """Return the time of the activation of a product's outputs [s], which its multiplications do not hide.

    outputs x cycles / lanes: a tile that fills shared memory has no other block on its SM that would multiply
    meanwhile. PyTorch calls a kernel of its own, which reads the outputs and writes them again.
    """
    outputs = gemm.batch * (1.0 * gemm.m * gemm.n)
    if conditions.library in APART:
        passed = 2.0 * dtype_bytes(gemm.out_dtype) * outputs
        return passed / (c["eta"] * machine.bandwidth_bytes_per_s) + launch_s(machine, c)
    return ACTIVATION_CYCLES[gemm.activation] * outputs / (machine.vector_flop_per_s / 2.0 / machine.packed)
