"""What the time of matrix products is made from: the rates of a machine, and what does not depend on the tile.

`perfmodel.prediction.latency.gemm.formula` has the formula.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from perfmodel.core.work import Number, maximum, minimum
from perfmodel.prediction.conditions import Conditions
from perfmodel.prediction.latency.family import Values
from perfmodel.prediction.latency.gemm.tiles import Tiles, tiles_by_rows, tiles_of
from perfmodel.prediction.latency.machine import Machine

Floats = NDArray[np.float64]

#: a split of k is tried that puts as many blocks on each SM
SPLIT_WAVES = 2.0
#: weights that a benchmark with rotating buffers keeps (aiconfigurator's collector: five copies)
ROTATING_COPIES = 5.0
#: outputs of a block of 128 x 128, of which every SM has one in a wave
WAVE_OUTPUTS = 128.0 * 128.0
#: elements of k that fill a page of DRAM (2 KiB of fp32)
PAGE_OF_K = 512.0
#: fp32 lanes of an SM above which shared memory (128 B a clock) does not feed them: an 8 x 8 outer product in registers
#: loads 16 numbers for 64 fused multiply-adds, and at 128 lanes that is as long as the arithmetic
FED_LANES, FEED = 64.0, 0.88


@dataclass(frozen=True)
class Product:
    """``batch`` products C[m, n] = A[m, k] B[k, n], and the size of an element of inputs and outputs [B]."""

    m: Number
    n: Number
    k: Number
    batch: Number
    input_bytes: float
    output_bytes: float


#: the clock at which the energy of a FLOP is stated [Hz]; boost clocks of data-centre GPUs are 1.4 to 2.0 GHz
ENERGY_CLOCK_HZ = 1.8e9
#: what all machines share; a family's constants override it
_VECTOR: Values = {
    "step": 8.0,  # k of one stage of shared memory
    "depth": 5760.0,  # outputs in flight that keep an SM busy: 90 for each of 64 lanes
    "quantum": 0.9,
    "latency": 0.0,
    "l2": 0.8,
    "kappa": np.inf,
}
_TENSOR: Values = {
    "step": 64.0,
    "depth": 0.0,
    "quantum": 0.4,
    "latency": 40e-9,
    "tile": 0.25,
    "linear": 1.0,
    "stride": 1.0,
    "math": 1.0,  # where a family has none: 8-bit products reach the peak as far as the power limit lets them
}
#: kernels with one tile for a product: no other tile evens out the last wave, and the deep pipeline of CUTLASS hides
#: more of a step. Both chosen on aic_gemm (sglang's fp8 on H100, H200, L40S).
_ONE_TILE: Values = {"quantum": 1.0, "latency": 15e-9}


def is_fp32(machine: Machine) -> bool:
    """Return whether products run on the vector engine, or on matrix cores that act like one in fp32 and fp64."""
    return machine.engine == "vector" or machine.dtype in ("fp32", "fp64")


def rates_of(product: Product, machine: Machine, c: Values, conditions: Conditions, batched: bool) -> Rates:
    """Return the rates, made once for a machine and its constants: they take a tenth of a single call."""
    sizes = (product.input_bytes, product.output_bytes)
    return _made(sizes, machine.symbols, tuple(c), tuple(c.values()), conditions.cache, conditions.library, batched)


@lru_cache(maxsize=64)
def _made(
    sizes: tuple[float, float], symbols: tuple[Any, ...], names: tuple[str, ...], values: tuple[float, ...],
    cache: str, library: str, batched: bool,
) -> Rates:  # fmt: skip
    c = dict(zip(names, values, strict=True))
    return Rates(
        Product(0.0, 0.0, 0.0, 0.0, *sizes), Machine(*symbols), c, Conditions("kernel", cache, library), batched
    )


class Rates:
    """One machine and one set of constants as the formula needs them; what depends on the tile is a column."""

    def __init__(self, product: Product, machine: Machine, c: Values, conditions: Conditions, batched: bool):
        fp32 = is_fp32(machine)
        by_rows = tiles_by_rows(machine, conditions.library)
        self.c = c = {**(_VECTOR if fp32 else _TENSOR), **(_ONE_TILE if by_rows else {}), **c}
        self.product = product
        self.sm_count = machine.sm_count
        self.bandwidth = c["eta"] * machine.bandwidth_bytes_per_s
        self.l2_bytes = machine.l2_bytes
        self.copies = {"warm": 1.0, "rotating": ROTATING_COPIES}.get(conditions.cache, 0.0)
        if fp32:
            self._of_vector(machine)
        else:
            self._of_tensor(machine)
        tiles = tuple(tile[:2] for tile in by_rows) or tiles_of(machine, batched)
        self.per_row, self.per_column, self.sides, area, edge = _columns(tiles)
        #: rows of the product that each tile is for: more than ``above``, at most ``up_to``; empty where it is for all
        self.up_to: Floats = np.array([[most] for *_, most in by_rows])
        self.above: Floats = np.array([[0.0], *self.up_to[:-1]]) if by_rows else self.up_to
        share = c["math"] * (1.0 if batched else c["linear"])
        if machine.engine == "vector" and machine.flop_per_clock_per_sm > 3.0 * FED_LANES:
            share *= FEED
        loss = (1.0 + c["tile"] * edge) / (1.0 + c["tile"] * edge.min())
        #: rate of one SM [FLOP/s], the time of one block for one step of k, and for filling and draining it [s]
        self.speed = share * machine.peak_flop_per_s / machine.sm_count / loss
        self.block_s = 2.0 * area / self.speed
        self.fill_s = self.block_s * (c["fill"] * product.output_bytes / product.input_bytes)
        self.least = np.maximum(1.0, c["depth"] / area)
        #: outputs that the largest tiles make in ``1 / SPLIT_WAVES`` waves: more than these are not split
        split = not by_rows and not (batched and fp32)
        self.whole_wave = 0.5 * SPLIT_WAVES * machine.sm_count * area.max() if split else 0.0

    def _of_vector(self, machine: Machine) -> None:
        """Set what L2 and power allow on the vector engine."""
        self.kappa = self.c["kappa"]
        self.l2_bandwidth = self.c["l2"] * machine.sm_count * 64.0 * machine.clock_hz
        self.s_per_flop = self.c["energy"] / machine.tdp_w

    def _of_tensor(self, machine: Machine) -> None:
        """Set what L2 and power allow on the tensor engine, in units that machines of all generations share.

        L2 is built for the tensor cores, so that its bandwidth goes with the peak; kernels start in clocks. Power is
        energy x rate, and where it goes beyond the limit, clock and voltage fall together, by which power falls with
        the cube of the rate: with demand = energy (f / 1.8 GHz)^2 P / TDP, the rate is P demand^(-1/3).
        """
        c, size = self.c, self.product.input_bytes
        self.kappa = resident_speed(machine, c)
        self.l2_bandwidth = c["l2"] * machine.peak_flop_per_s * size / 64.0
        joule = c["energy"] * (0.5 * size) * (machine.clock_hz / ENERGY_CLOCK_HZ) ** 2
        self.s_per_flop = (joule / (machine.tdp_w * machine.peak_flop_per_s**2)) ** (1.0 / 3.0)


def resident_speed(machine: Machine, c: Values) -> float:
    """Return how much faster data that lie in L2 are than those of device memory: they have a share of L2's 64 B/clk.

    >>> of = Machine("", 100.0, 1e9, 1e14, "tensor", "bf16", 1e13, 1e12, 5e7, 400.0)
    >>> round(resident_speed(of, {"resident": 0.05}), 6)  # 0.05 x 64 B x 100 x 1 GHz = 0.32 TB/s beside 1 TB/s
    1.32
    """
    return 1.0 + c["resident"] * 64.0 * machine.sm_count * machine.clock_hz / machine.bandwidth_bytes_per_s


def launch_s(machine: Machine, c: Values) -> float:
    """Return the time to start and drain a kernel [s]: in clocks on the tensor engine, else as it is.

    A convolution brings the launch of its own family.
    """
    return c["launch"] if "launch" in c else c["start"] / machine.clock_hz


def held_share(used_bytes: Number, l2_bytes: float) -> Number:
    """Return the share of data, used again and again, that L2 holds: all below 0.95 of its size, none above 1.15."""
    return minimum(1.0, maximum(0.0, (1.15 * l2_bytes - used_bytes) / (0.2 * l2_bytes)))


class Rows:
    """Some of the products, with what does not depend on the tile: arrays of one length, or numbers for one product."""

    def __init__(self, sizes: tuple[Number, ...], rates: Rates):
        self.m, self.n, self.k, self.batch = sizes
        self.outputs = self.batch * self.m * self.n
        self.flop = 2.0 * self.outputs * self.k
        self.dram = self._traffic(rates) / rates.bandwidth
        self.power = rates.s_per_flop * self.flop

    def _traffic(self, r: Rates) -> Number:
        """Return the bytes that cross device memory; of those that L2 holds, the share that takes as long [B]."""
        one_a, one_b = r.product.input_bytes * self.m * self.k, r.product.input_bytes * self.n * self.k
        written = r.product.output_bytes * self.outputs
        # One wave of blocks works on a super-tile, as square as the output lets it be.
        area = r.sm_count * WAVE_OUTPUTS
        rows = minimum(self.m, area**0.5)
        columns = minimum(self.n, area / rows)
        again = maximum(0.0, 1.0 - r.l2_bytes / (one_a + one_b))
        a = one_a * (1.0 + again * (maximum(1.0, self.n / columns) - 1.0))
        b = one_b * (1.0 + again * (maximum(1.0, self.m / rows) - 1.0))
        if r.c["stride"] != 1.0:
            # The rows of A are read in short pieces, each from another page of DRAM where k is long.
            a = a * (1.0 + (r.c["stride"] - 1.0) * minimum(1.0, self.k / PAGE_OF_K))
        read = self.batch * (a + b)
        if r.copies and r.l2_bytes:
            resident = self.batch * (one_a + r.copies * one_b) + written
            read = read * (1.0 - held_share(resident, r.l2_bytes) * (1.0 - 1.0 / r.kappa))
        return read + written


@lru_cache(maxsize=64)
def _columns(tiles: Tiles) -> tuple[Floats, ...]:
    """Return what the formula needs of some tiles, as columns: 1 / tm, 1 / tn, tm + tn, tm tn, 64 (1 / tm + 1 / tn)."""
    tm, tn = np.array(tiles, np.float64).T[:, :, None]
    return 1.0 / tm, 1.0 / tn, tm + tn, tm * tn, 64.0 * (1.0 / tm + 1.0 / tn)
