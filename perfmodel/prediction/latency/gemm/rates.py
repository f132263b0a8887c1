"""What a machine and its constants mean for matrix products: rates, and what each tile costs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from perfmodel.core.dtypes import dtype_bytes
from perfmodel.core.hardware import Tiles
from perfmodel.core.record import record
from perfmodel.core.vocabulary import CacheState, Timing
from perfmodel.core.work import Number
from perfmodel.prediction.conditions import Conditions
from perfmodel.prediction.latency.family import Values
from perfmodel.prediction.latency.gemm.tiles import Tile, cuts, tiles_by_rows, tiles_of
from perfmodel.prediction.latency.instructions import OF_VENDOR
from perfmodel.prediction.latency.machine import Machine
from perfmodel.prediction.latency.power import s_per_byte, s_per_flop
from perfmodel.prediction.latency.streams import L2_BYTES_PER_CLOCK, runs_layers

#: a split of k makes at most so many parts
MOST_PARTS = 32.0
#: blocks an SM up to which a product is split along k
SPLIT_WAVES = 2.0
#: weights that a benchmark with rotating buffers keeps (aiconfigurator's collector: five copies)
ROTATING_COPIES = 5.0
#: share of L2's 64 B a clock and SM that the operands of the same call have beside device memory's, where no other
#: kernel runs in between: read off the thinnest products of L40S, RTX 5090 and PRO 6000, H100 and B200 (`examples/
#: published`, in view), which ask for 0.14, 0.08, 0.08, 0.07 and at most 0.05 if 2.5 us are taken for their start.
#: Tables are of layers, or of five copies that take turns, and ask for 0.02
SAME_CALL = 0.08
#: lanes of an SM that convert integers: a LOP3 and a PRMT turn several packed weights at a time (CUDA C++ programming
#: guide, throughput of native arithmetic instructions, integer operations: 64 a clock)
INTEGER_LANES = 64.0
#: fp32 lanes of an SM above which shared memory (128 B a clock) does not feed them: an 8 x 8 outer product in registers
#: loads 16 numbers for 64 fused multiply-adds, and with 128 lanes that takes as long as the arithmetic
FED_LANES, FEED = 64.0, 0.88
#: lanes of an SM that the outputs in flight keep busy. Fewer lanes, as an SM of most GPUs has for fp64, wait for as
#: many clocks and need as many fewer outputs: their kernels were not measured. NeuSight's rows of machines with more
#: lanes (P4) ask for no more
DEPTH_LANES = 64.0
#: pause between the calls of a loop that is timed by events around them, which the power limit of some boards counts.
#: Chosen on the fitted half of T4's rows (NeuSight @ 6945927d9afc): 0.1, 0.3 and 0.6 ms leave 16.8, 16.6 and 16.8 %,
#: none 17.5 %; on P4 0.3 ms leave 11.1 %, none 11.2. On MI100 linear layers get worse by it (11.6 to 12.1 %)
PAUSE_S = 0.2e-3

#: start of the reduction of the parts of k on fp32 lanes [s]: assumed; all machines but two keep it in a fit
VECTOR_SPLIT = 4e-6
#: energy of a byte that crosses device memory [J]: of 0, 40, 60 and 90 pJ the one with which fp32 products on T4, MI210
#: and MI100 come out best together (NeuSight @ 6945927d9afc). DRAM and its interface alone take 3.92 pJ a bit in HBM2,
#: 31 pJ a byte, and 14 pJ a bit in GDDR5, 112 pJ a byte (M. O'Connor et al., "Fine-Grained DRAM", MICRO-50, 2017,
#: doi:10.1145/3123939.3124545, as it is quoted; the paper itself was not at hand). Products in 16 and 8 bits, and
#: convolutions, were fitted without it: the energy of their FLOP holds that of their traffic
JOULE_PER_BYTE = 60e-12
#: time of the arithmetic of single fp32 products where two sizes are no multiples of a cache line, over that where they
#: are: threads that load by way of their registers check the bounds of each element, and a copy to shared memory fills
#: what lies outside with zeros. Of the fitted half of linear layers (NeuSight @ 6945927d9afc) V100 tells 1.07 and P100
#: 1.12; A100 and H100, which copy, lose nothing; the power limit hides it on T4. Where weights are read
#: again off cache lines, as on P4, the machine's own constant ``ragged`` holds
BOUNDS = 1.09
#: energy of a FLOP in batches of products on a vector engine, over that in single ones. Their tiles are smaller, so
#: that more bytes cross L2 and shared memory for each FLOP. Without it, measured over predicted of batches above 10
#: GFLOP is 4 to 6 % more than that of single products on T4, P4 and A100 (the half of NeuSight @ 6945927d9afc that is
#: not fitted, so that this is chosen on rows that judge). 1, 1.05 and 1.1 leave 0.332, 0.330 and 0.334 in the fitted
#: half of the three. AMD's tables have costs of batches of their own, and their fit ended in a worse place with it
BATCH_ENERGY = 1.05
#: constants that all machines share; those of a family override them
_VECTOR: Values = {
    "step": 8.0,  # k of one stage of shared memory
    "depth": 5760.0,  # outputs in flight that keep an SM of 64 lanes (`DEPTH_LANES`) busy: 90 for each
    "quantum": 0.9,
    "latency": 0.0,
    "parts": MOST_PARTS,
    "split": VECTOR_SPLIT,
    "ragged": 1.0,
    "bounds": BOUNDS,
    "byte_energy": JOULE_PER_BYTE,
    "batch_energy": BATCH_ENERGY,
    "l2": 0.8,
    # geometric mean of L2 over device memory in elementwise rows of A100, H100 and L4 (1, 2, 6; NeuSight @
    # 6945927d9afc); no row of products tells it from infinity
    "resident_speed": 2.3,
    # Where a family of 8-bit products runs on vector lanes (V100's DP4A), which no table has: those of tensor engines.
    "tile": 0.25,
    "linear": 1.0,
    "stride": 1.0,
}
_TENSOR: Values = {
    "step": 64.0,
    "depth": 0.0,
    "quantum": 0.4,
    "latency": 40e-9,
    "parts": MOST_PARTS,
    "tile": 0.25,
    "linear": 1.0,
    "stride": 1.0,
    "ragged": 1.0,
    "math": 1.0,  # where a family has none: 8-bit products reach the peak as far as the power limit lets them
}
#: kernels with one tile for a product: no other tile evens out the last wave, and the deep pipeline of CUTLASS hides
#: more of a step. Both chosen on aic_gemm (sglang's fp8 on H100, H200, L40S).
_ONE_TILE: Values = {"quantum": 1.0, "latency": 15e-9}


class Some:
    """Some of the products of a sweep, by their places: numpy takes ten times as long to gather what a mask holds for.

    Attributes
    ----------
    shape, places : of all products, and of these among them.
    """

    def __init__(self, mask: NDArray[np.bool_], shape: tuple[int, ...]):
        self.shape, self.places = shape, np.nonzero(np.broadcast_to(mask, shape))

    @property
    def are_many(self) -> bool:
        """Whether they are so many that to gather them takes longer than to compute the rest."""
        return 2 * self.places[0].size > math.prod(self.shape)

    def of(self, size: Any) -> Any:
        """Return what they have of an array, which may broadcast; a number stays one."""
        return np.broadcast_to(size, self.shape)[self.places] if isinstance(size, np.ndarray) else size


@record
class Product:
    """``batch`` products C[m, n] = A[m, k] B[k, n].

    Attributes
    ----------
    m, n, k, batch : sizes.
    input_bytes, output_bytes : size of an element of A and of C [B].
    weight_bytes : size of an element of B with its share of the scales [B]; 0 where it is that of A.
    tiles : tiles of the kernels, where they are not those of products of one dtype.
    rows_apart : whether the rows of both operands lie k elements apart, as in a linear layer.
    """

    m: Number
    n: Number
    k: Number
    batch: Number
    input_bytes: float
    output_bytes: float
    weight_bytes: float = 0.0
    tiles: Tiles = ()
    rows_apart: bool = True

    @property
    def b_bytes(self) -> float:
        """Size of an element of B [B]."""
        return self.weight_bytes or self.input_bytes

    def at(self, some: Some) -> Product:
        """Return some of the products; a size that they share stays a number."""
        return replace(self, **{name: some.of(getattr(self, name)) for name in ("m", "n", "k", "batch")})


def is_fp32(machine: Machine) -> bool:
    """Return whether products run on the vector engine, or on matrix cores that act like one in fp32 and fp64."""
    return machine.engine == "vector" or machine.dtype in ("fp32", "fp64")


def launch_s(machine: Machine, c: Values) -> float:
    """Return the time to start and drain a kernel [s]: in clocks on the tensor engine, else as it is.

    A convolution brings the launch of its own family.
    """
    return c["launch"] if "launch" in c else c["start"] / machine.clock_hz


def pause_s(machine: Machine, conditions: Conditions) -> float:
    """Return the pause between calls, where the power limit of a board counts it [s]."""
    averaged = machine.kernels.averages_power and conditions.timing == Timing.EVENT
    return PAUSE_S if averaged else 0.0


def resident_speed(machine: Machine, share: float) -> float:
    """Return how much faster data in L2 are than those of device memory: a share of L2's 64 B a clock adds to it.

    >>> of = Machine(100.0, 1e9, 1e14, "tensor", "bf16", 1e13, 1e12, 5e7, 400.0)
    >>> round(resident_speed(of, 0.05), 6)  # 0.05 x 64 B x 100 x 1 GHz = 0.32 TB/s beside 1 TB/s
    1.32
    """
    l2 = L2_BYTES_PER_CLOCK * machine.sm_count * machine.clock_hz
    return 1.0 + share * l2 / machine.bandwidth_bytes_per_s


def rates_of(product: Product, machine: Machine, c: Values, conditions: Conditions, batched: bool) -> Rates:
    """Return the rates of a machine and its constants; computing them takes a tenth of a single call, so they are kept.

    The sizes of the product do not matter, only those of its elements.
    """
    element = (product.input_bytes, product.output_bytes, product.weight_bytes, product.tiles, product.rows_apart)
    key = (Rates, element, conditions, batched)
    return machine.kept(key, c, lambda: Rates(product, machine, c, conditions, batched))


class Rates:
    """One machine and one set of constants as the formula needs them.

    Attributes
    ----------
    c : all constants.
    product : one with elements of the right size.
    sm_count, bandwidth, l2_bytes, l2_bandwidth : of the machine; the bandwidths are the reachable ones [B/s].
    copies : sets of weights that take turns; 0 where the caches are cold.
    resident_speed : speed of data in L2 over that of device memory.
    s_per_flop, s_per_byte : time of a FLOP, and of a byte of device memory, at the power limit [s].
    pause_s : pause between calls, in which no power is drawn [s].
    per_step : 1 / k of one stage of shared memory, which is one step.
    waiting_s, fed_s : latency of a step, and time of L2 for one row of a tile and each element of k [s].
    per_sm : 1 / SMs.
    rounds, evened : shares of the last wave's idle SMs that are lost, and that are not.
    cuts : the tiles, each with its index, and with the next one where that is the same tile turned.
    heights, widths, fills : 1 / tm, 1 / tn and the fill of the tiles, each once.
    columns, tiles : what the formula needs of the tiles, as arrays, or a number where all are alike; and tile by tile.
    few_blocks : whether some tile asks for more than one block to keep an SM busy.
    by_rows : whether each tile is for some rows of the product only.
    widens : whether weights are widened.
    walk : time that addresses out of reach add, over that of the arithmetic.
    reread : time that reading weights again takes where rows lie off cache lines, over that of the arithmetic.
    ragged_batch : time that batches add where neither side of B fills whole cache lines, over that of the arithmetic.
    small : time that batches of small products add, over that of the arithmetic.
    channel : time that rows in one channel of memory add, over that of the arithmetic.
    ragged, bounds : energy and time of the arithmetic where two sizes are no multiples of a cache line, over those
        where they are.
    whole_wave : outputs that the largest tiles compute in ``1 / SPLIT_WAVES`` waves: larger products are not split.
    split_blocks, most_parts : blocks up to which a product is split, and the most parts that it has.
    """

    def __init__(self, product: Product, machine: Machine, c: Values, conditions: Conditions, batched: bool):
        fp32 = is_fp32(machine)
        by_rows = () if product.tiles else tiles_by_rows(machine, conditions.library)
        self.c = c = {**(_VECTOR if fp32 else _TENSOR), **(_ONE_TILE if by_rows else {}), **c}
        self.product = product
        self.sm_count = machine.sm_count
        self.bandwidth = c["eta"] * machine.bandwidth_bytes_per_s
        self.l2_bytes = machine.l2_bytes
        self.copies = {CacheState.WARM: 1.0, CacheState.ROTATING: ROTATING_COPIES}.get(conditions.cache, 0.0)
        self.pause_s = pause_s(machine, conditions)
        (self._set_vector if fp32 else self._set_tensor)(machine, conditions)
        if batched and machine.engine == "vector":
            self.s_per_flop *= c["batch_energy"]
        self.per_step, self.waiting_s = 1.0 / c["step"], c["latency"] / 64.0 * c["step"]
        self.fed_s = product.input_bytes / self.l2_bandwidth
        self.per_sm, self.rounds, self.evened = 1.0 / machine.sm_count, c["quantum"], 1.0 - c["quantum"]
        self.by_rows = bool(by_rows)
        tiles = product.tiles or tuple(tile[:2] for tile in by_rows) or tiles_of(machine, batched)
        of_vendor = batched and machine.dtype == "fp32" and conditions.library in OF_VENDOR
        self._set_tiles(machine, tiles, by_rows, batched, machine.kernels.gemm_batched_share if of_vendor else 1.0)
        # Not seen in batches, whose measured operands are within reach; nor where B lies row by row, as in torch.mm and
        # cuBLAS's plain call: squares of 8192 to 32768 take a P100 what its rate says (two sources of
        # `examples/published`)
        self.walk = machine.kernels.translation_cost if fp32 and not batched and product.rows_apart else 0.0
        # Measured in fp32, over whose arithmetic they are stated.
        measured = machine.dtype == "fp32"
        self.ragged_batch = machine.kernels.ragged_batch_cost if batched and measured else 0.0
        self.small = machine.kernels.small_batch_cost if batched and measured else 0.0
        # Not where B lies row by row: of 25 such products on P4 (NeuSight @ 6945927d9afc, the fitted half) the five of
        # more than 40 us that are no narrower than 145 take 0.77 times as long as with it in the mean of ln, and 0.97
        # without
        layer = measured and not batched and product.rows_apart
        self.reread = machine.kernels.reread_cost if layer else 0.0
        self.channel = 0.0 if batched or not fp32 else machine.kernels.channel_cost
        self.ragged = c["ragged"]
        # Not in batches, whose kernels check their bounds anyway.
        loads = machine.engine == "vector" and machine.dtype in ("fp32", "fp64") and not machine.copies_to_shared
        self.bounds = 1.0
        if loads and not batched:
            self.bounds = self.ragged if self.reread else c["bounds"]
        split = not by_rows and not (batched and fp32) and c["parts"] > 1.0
        largest = max(rows * columns for rows, columns in tiles)
        self.whole_wave = 0.5 * SPLIT_WAVES * machine.sm_count * largest if split else 0.0
        self.split_blocks, self.most_parts = SPLIT_WAVES * machine.sm_count, c["parts"]

    def _set_tiles(
        self, machine: Machine, tiles: Tiles, by_rows: Sequence[tuple[int, int, float]], batched: bool, most: float
    ) -> None:
        """Set what the formula needs of each tile: its rate on the engine, and what it fills, feeds and widens.

        The rate is at most the share ``most`` of the peak.
        """
        c, product = self.c, self.product
        rows, columns = np.array(tiles, np.float64).T
        area, edge = rows * columns, 64.0 * (1.0 / rows + 1.0 / columns)
        share = c["math"] * (1.0 if batched else c["linear"])
        if machine.engine == "vector" and machine.flop_per_clock_per_sm > 3.0 * FED_LANES:
            share *= FEED
        loss = (1.0 + c["tile"] * edge) / (1.0 + c["tile"] * edge.min())
        # What tiles lose is the feeding of the engine: one that computes at half rate is fed in time.
        fed = np.minimum(machine.fed(share / loss), most)
        in_time = fed / (machine.slack * share / loss)
        speed = fed * machine.peak_flop_per_s / machine.sm_count
        block_s = 2.0 * area / speed
        self.widens = "dequant" in c
        # Each block widens the weights of its columns, on the lanes for integers beside the tensor engine.
        widening_s = (c["dequant"] if self.widens else 0.0) * columns / (INTEGER_LANES * machine.clock_hz)
        block_s = block_s + widening_s
        up_to = np.array([most for *_, most in by_rows] or [np.inf] * len(tiles))
        step_s = block_s * c["step"]
        lanes = min(1.0, machine.flop_per_clock_per_sm / (2.0 * DEPTH_LANES))
        least = np.maximum(1.0, c["depth"] * lanes / area)
        of_tiles = Tile(
            per_row=1.0 / rows,
            per_column=1.0 / columns,
            sides=rows + columns * (product.b_bytes / product.input_bytes),
            flop_per_s=speed * machine.sm_count,
            step_s=step_s,
            rounded_s=self.rounds * step_s,
            evened_s=self.evened * step_s,
            busy_s=least * step_s,
            fill=in_time * (c["fill"] / c["step"] * product.output_bytes / product.input_bytes),
            widening=widening_s / block_s,
            least=least,
            above=np.array([0.0, *up_to[:-1]]) if by_rows else np.zeros(len(tiles)),
            up_to=up_to,
        )
        self.tiles = [Tile(*tile) for tile in zip(*(column.tolist() for column in of_tiles.numbers()), strict=True)]
        self.columns = of_tiles.each(lambda column: column if (column != column[0]).any() else float(column[0]))
        self.few_blocks = any(tile.least > 1.0 for tile in self.tiles)
        self.cuts = list(cuts(self.tiles))
        self.heights = {tile.per_row for tile in self.tiles}
        self.widths = {tile.per_column for tile in self.tiles}
        self.fills = {tile.fill for tile in self.tiles}

    def tile_of(self, index: NDArray[np.intp]) -> Tile:
        """Return the tile that each product has, given its index."""
        return self.columns.each(lambda item: item.take(index) if isinstance(item, np.ndarray) else item)

    def _set_vector(self, machine: Machine, conditions: Conditions) -> None:
        """Set what L2 and power allow on the vector engine."""
        self.resident_speed = self.c["resident_speed"]
        self.l2_bandwidth = self.c["l2"] * machine.sm_count * L2_BYTES_PER_CLOCK * machine.clock_hz
        # Lanes that pack narrower numbers take less energy for each, in proportion to the bytes, as tensor engines do.
        narrow = min(1.0, dtype_bytes(machine.dtype) / dtype_bytes("fp32")) if machine.dtype else 1.0
        self.s_per_flop = s_per_flop(machine, self.c["energy"] * narrow, conditions.load)
        self.s_per_byte = s_per_byte(machine, self.c["byte_energy"], conditions.load)

    def _set_tensor(self, machine: Machine, conditions: Conditions) -> None:
        """Set what L2 and power allow on the tensor engine, in units that machines of all generations share.

        L2 is built for the tensor cores, so that its bandwidth goes with the peak; kernels start in clocks. A FLOP of
        narrower numbers takes less energy in proportion to their bytes.
        """
        c, size = self.c, self.product.input_bytes
        self.s_per_byte = 0.0
        again = conditions.cache == CacheState.WARM and not runs_layers(conditions.library)
        self.resident_speed = resident_speed(machine, max(c["resident"], SAME_CALL) if again else c["resident"])
        self.l2_bandwidth = c["l2"] * machine.slack * machine.peak_flop_per_s * size / 64.0
        self.s_per_flop = s_per_flop(machine, c["energy"] * 0.5 * size, conditions.load)
