"""What the time of matrix products is made from: the rates of a machine, and what does not depend on the tile.

`perfmodel.analysis.latency._product` has the formula.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from perfmodel.analysis.latency._base import Machine, Values, View
from perfmodel.analysis.latency._tiles import Tiles, tiles_of
from perfmodel.core.work import Number, maximum, minimum

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
}


def is_fp32(machine: Machine) -> bool:
    """Return whether products run on the vector engine, or on matrix cores that act like one in fp32 and fp64."""
    return machine.engine == "vector" or machine.dtype in ("fp32", "fp64")


def rates_of(product: Product, machine: Machine, c: Values, view: View, batched: bool) -> Rates:
    """Return the rates, made once for a machine and its constants: they take a tenth of a single call."""
    sizes = (product.input_bytes, product.output_bytes)
    return _made(sizes, machine.symbols, tuple(c), tuple(c.values()), view.cache, batched)


@lru_cache(maxsize=64)
def _made(
    sizes: tuple[float, float], symbols: tuple[Any, ...], names: tuple[str, ...], values: tuple[float, ...],
    cache: str, batched: bool,
) -> Rates:  # fmt: skip
    c = dict(zip(names, values, strict=True))
    return Rates(Product(0.0, 0.0, 0.0, 0.0, *sizes), Machine(*symbols), c, View(cache=cache), batched)


class Rates:
    """One machine and one set of constants as the formula needs them; what depends on the tile is a column."""

    def __init__(self, product: Product, machine: Machine, c: Values, view: View, batched: bool):
        fp32 = is_fp32(machine)
        self.c = c = {**(_VECTOR if fp32 else _TENSOR), **c}
        self.product = product
        self.sm_count = machine.sm_count
        self.bandwidth = c["eta"] * machine.bandwidth_bytes_per_s
        self.l2_bandwidth = c["l2"] * machine.sm_count * 64.0 * machine.clock_hz
        self.l2_bytes = machine.l2_bytes
        self.copies = {"warm": 1.0, "rotating": ROTATING_COPIES}.get(view.cache, 0.0)
        self.s_per_flop = c["energy"] / machine.tdp_w
        self.per_row, self.per_column, self.sides, area, edge = _columns(tiles_of(machine, batched))
        share = c["math"] * (1.0 if batched else c["linear"])
        if machine.engine == "vector" and machine.flop_per_clock_per_sm > 3.0 * FED_LANES:
            share *= FEED
        loss = (1.0 + c["tile"] * edge) / (1.0 + c["tile"] * edge.min())
        #: rate of one SM [FLOP/s], and the time of one block for one step of k [s]
        self.speed = share * machine.peak_flop_per_s / machine.sm_count / loss
        self.block_s = 2.0 * area / self.speed
        self.least = np.maximum(1.0, c["depth"] / area)
        #: outputs that the largest tiles make in ``1 / SPLIT_WAVES`` waves: more than these are not split
        self.whole_wave = 0.0 if batched and fp32 else 0.5 * SPLIT_WAVES * machine.sm_count * area.max()


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
            held = minimum(1.0, maximum(0.0, (1.15 * r.l2_bytes - resident) / (0.2 * r.l2_bytes)))
            read = read * (1.0 - held * (1.0 - 1.0 / r.c["kappa"]))
        return read + written


@lru_cache(maxsize=64)
def _columns(tiles: Tiles) -> tuple[Floats, ...]:
    """Return what the formula needs of some tiles, as columns: 1 / tm, 1 / tn, tm + tn, tm tn, 64 (1 / tm + 1 / tn)."""
    tm, tn = np.array(tiles, np.float64).T[:, :, None]
    return 1.0 / tm, 1.0 / tn, tm + tn, tm * tn, 64.0 * (1.0 / tm + 1.0 / tn)
