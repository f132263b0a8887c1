"""What a product's kernels are before their sizes: machine, constants, start and rates, found once and kept."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from perfmodel.core.dtypes import dtype_bytes
from perfmodel.operators.gemm import Gemm
from perfmodel.operators.scales import weight_bytes
from perfmodel.prediction.conditions import Conditions
from perfmodel.prediction.latency.family import Values
from perfmodel.prediction.latency.gemm.own_kernels import has_own_kernels
from perfmodel.prediction.latency.gemm.quantisation import PRODUCT_START
from perfmodel.prediction.latency.gemm.rates import Product, Rates, is_fp32, launch_s, rates_of
from perfmodel.prediction.latency.gemm.sectors import pitches_bits
from perfmodel.prediction.latency.machine import Machine

#: TensorRT-LLM computes the scale of an fp8 input at run time, in two more passes over A, but has that of an fp4 input:
#: (library, bytes of an element) -> share of the kernels that start (chosen on aic_gemm, B200)
FEWER_KERNELS = {("trtllm", 0.5): 0.6}
#: the most lanes of fp64 over those of fp32 that are few, and the share of their peak that products reach: those of
#: 2048 rows and more 0.74 to 1.08 on seven machines of three sources, batches of 64 and less on an RTX 4090 0.78 to
#: 0.94 where their sizes are whole tiles (`examples/published`, in view)
FEW_LANES, FEW_LANES_REACH = 1.0 / 8.0, 0.9


class Setup:
    """What holds for all products of some settings, on a machine and by some constants.

    Attributes
    ----------
    machine, c : with the rate at which the lanes add up, and what few lanes change of the constants.
    launch_s : time to start and drain the kernels [s].
    has_own_kernels : whether some products run in cuBLAS's kernels for few rows or fp64.
    loads_rows : whether rows that begin off sectors and vectors take longer.
    quantises : whether the call quantises A first.
    """

    def __init__(self, gemm: Gemm, machine: Machine, c: Values, conditions: Conditions):
        self.machine = machine = _accumulating(gemm, machine)
        self.c = c = _on_few_lanes(machine, c)
        self.conditions = conditions
        self.launch_s = _launch_s(gemm, machine, c, conditions)
        self.has_own_kernels = has_own_kernels(machine) and "triton" not in conditions.library
        self.loads_rows = not self.has_own_kernels and not is_fp32(machine)
        self.quantises = "quantisation_bytes" in c and gemm.is_quantised_by(conditions.library)
        weights = 0.0 if gemm.weight_dtype == gemm.dtype else weight_bytes(gemm.weight_dtype, gemm.scale)
        self._input_bytes, self._output_bytes = dtype_bytes(gemm.dtype), dtype_bytes(gemm.out_dtype)
        # a bias makes it a linear layer, whose weights lie [n, k]
        self._element = (self._input_bytes, self._output_bytes, weights, (), bool(gemm.bias))
        self._rates: dict[bool, Rates] = {}

    def product(self, gemm: Gemm) -> Product:
        """Return a product of these settings with the bytes of each operand."""
        return Product(gemm.m, gemm.n, gemm.k, gemm.batch, *self._element)

    def pitches(self, gemm: Gemm) -> Any:
        """Return the pitches of the rows of a product's operands, as `pitches_of` does."""
        return pitches_bits(gemm.k, gemm.n, self._input_bytes, self._output_bytes)

    def rates(self, batched: bool) -> Rates:
        """Return the rates of single products, or of those in a batch."""
        found = self._rates.get(batched)
        if found is None:
            one = Product(1.0, 1.0, 1.0, 1.0, *self._element)
            found = self._rates[batched] = rates_of(one, self.machine, self.c, self.conditions, batched)
        return found


def setup_of(gemm: Gemm, machine: Machine, c: Values, conditions: Conditions) -> Setup:
    """Return what holds for all products of the settings of one."""
    return machine.kept((Setup, gemm.settings, conditions), c, lambda: Setup(gemm, machine, c, conditions))


def _accumulating(gemm: Gemm, machine: Machine) -> Machine:
    """Return the machine at the rate at which its lanes multiply and add up in fp32, as libraries do.

    Lanes that take two 16-bit numbers at once also add up in 16 bits, which only ``engine="vector"`` asks for. 8192^3
    in fp16 take PyTorch 0.142 s on a P100, 7.7 of 18.7 TFLOP/s, and 0.127 s in fp32
    (github.com/zzc0721/torch-performance-test-data, issue 174).
    """
    if machine.engine != "vector" or gemm.engine == "vector" or dtype_bytes(gemm.dtype) != 2.0:
        return machine
    if _accumulating not in machine.cache:
        rate = min(machine.peak_flop_per_s, machine.vector_flop_per_s)
        machine.cache[_accumulating] = replace(machine, peak_flop_per_s=rate, dtype="fp32")
    found: Machine = machine.cache[_accumulating]
    return found


def _on_few_lanes(machine: Machine, c: Values) -> Values:
    """Return the constants of a product in fp64 on chips with few lanes for it, behind which the rest of a block hides.

    GeForce and its like have a 32nd or a 64th of the lanes of fp32: they reach `FEW_LANES_REACH` of their peak. The
    loads of small tiles, and the filling of the pipeline, take as many clocks as those of fp32: less of the arithmetic.
    """
    if machine.dtype != "fp64" or not machine.peak_flop_per_s < FEW_LANES * machine.vector_flop_per_s:
        return c
    lanes = machine.peak_flop_per_s / machine.vector_flop_per_s
    return {**c, "math": FEW_LANES_REACH, "linear": 1.0, "fill": lanes * c["fill"], "tile": lanes * c["tile"]}


def _launch_s(gemm: Gemm, machine: Machine, c: Values, conditions: Conditions) -> float:
    """Return the time to start and drain the kernels of a product, those that quantise its input among them [s]."""
    start = launch_s(machine, c)
    if "quantisation_bytes" not in c:
        return start
    if not gemm.is_quantised_by(conditions.library):
        return min(start, PRODUCT_START / machine.clock_hz)
    return start * FEWER_KERNELS.get((conditions.library, dtype_bytes(gemm.dtype)), 1.0)
