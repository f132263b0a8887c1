"""What the sizes of matrix products ask for, whatever their tile: traffic, power, rows out of reach."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from perfmodel.core.work import OF_MANY, OF_ONE, Number, anywhere, ceil, maximum, minimum, where
from perfmodel.prediction.latency.gemm.rates import Rates, Some
from perfmodel.prediction.latency.gemm.tiles import Tile
from perfmodel.prediction.latency.streams import fitting_share

#: rows and outputs of a block of 128 x 128, of which every SM has one in a wave
BLOCK_ROWS, WAVE_OUTPUTS = 128.0, 128.0 * 128.0
#: elements of a cache line of 128 B in fp32: where two of the three sizes are multiples of it, rows start at cache
#: lines, or no tile has to check its bounds
WHOLE_LINES = 32.0
#: elements of k that fill a page of DRAM (2 KiB of fp32)
PAGE_OF_K = 512.0
#: bytes from the first to the last row of a wave's operands that address translation reaches, where a wave is a column
#: of blocks of 128 rows, one an SM. Chosen with the translation costs of P100 (1.8) and P4 (0.9) on half of their 1,800
#: and 520 fp32 linear layers above 3 ms (NeuSight @ 6945927d9afc): 12 and 11 % off in the mean, the other half 13 and
#: 11 %; with a wave as square as the output lets it be 17 and 12 %, whatever reach
REACH_BYTES = 140e6
#: weights are read again for every row of tiles, a wave of which covers 256 columns an SM (two blocks of 128), as far
#: as none of them stays in reach, which from 96 MB on is so for fewer columns. On P4 this takes longer than the
#: arithmetic: the more the longer k is, as (k / 256)^0.22, 1.6 times with tiles of 64 rows, which cuBLAS takes where
#: they are padded less, and less with few rows, whose first reading counts. All read off rates by m, n and k of the
#: fitted half of 3,300 linear layers off cache lines on P4 (NeuSight @ 6945927d9afc)
REREAD_COLUMNS, REREAD_BYTES, REREAD_POWER, REREAD_NARROW, REREAD_ROWS = 256.0, 96e6, 0.22, 1.6, 500.0
#: largest size of small products, and elements of B of which 2.5 to 3.5 times as many make all of them slow. In 691
#: fitted rows of batches on MI100 and 750 on MI210 (NeuSight @ 6945927d9afc) those with sizes up to 512 take 1.8 and
#: 1.6 times as long as larger ones let expect, where B is larger than A (64 x 384 times 384 x 384, but not 384 x 64
#: times 64 x 384) or has over 49,152 elements; fewer than 128 rows add the square root of what tiles of 128 pad
SMALL, SMALL_B = 512.0, 16384.0
#: the fewest rows among them; fewer lose no more, so far as anybody measured
FEWEST_ROWS = 64.0
#: bytes between rows from which on multiples of them meet in few channels: MI100 and MI210 keep their rate at 64 KiB
#: and take 1.3 to 1.8 times as long at 128 KiB, 2.4 to 2.9 times at 256 KiB (NeuSight @ 6945927d9afc)
CHANNEL_BYTES = 65536.0


def fourth_power(value: Any) -> Any:
    """Return value^4."""
    square = value * value  # Python takes three times as long for a power
    square *= square
    return square


def off_lines(m: Number, n: Number, k: Number) -> Any:
    """Return whether two sizes are no multiples of a cache line; a remainder takes numpy five times as long."""
    off_m, off_n, off_k = _off(m), _off(n), _off(k)
    return (off_m & off_n) | (off_k & (off_m | off_n))


def _off(size: Number) -> Any:
    lines = size * (1.0 / WHOLE_LINES)
    return ceil(lines) != lines


#: steps that a block takes with the filling of its pipeline; and, for each of them, the latency that no other block
#: hides, None where there is none [s]
Pipeline = tuple[Any, Any]
#: 1 / tm -> tiles of that height that cover the rows, and 1 / tn -> those that cover the columns
Counts = tuple[dict[float, Any], dict[float, Any]]


class Sizes:
    """The sizes of products, and what follows from them without the tile: arrays of one length, or numbers for one."""

    def __init__(self, m: Number, n: Number, k: Number, batch: Number, rates: Rates):
        self.m, self.n, self.k, self.batch = m, n, k, batch
        one = type(m) is type(n) is type(k) is type(batch) is float
        self.ceil, self.floor, self.raised, self.lowered, self.number = OF_ONE if one else OF_MANY
        #: whether arrays are of single products: to multiply by 1 takes numpy as long as by any number
        self.single = not one and type(batch) is float and batch == 1.0
        self.outputs = m * n if self.single else batch * m * n
        self.power = 2.0 * rates.s_per_flop * (self.outputs * k)
        a, b = self._read(rates)
        if rates.s_per_byte:
            self.power = self.power + rates.s_per_byte * (
                self._of_batch(a + b) + rates.product.output_bytes * self.outputs
            )
        self.hbm = self._traffic(a, b, rates) / rates.bandwidth
        self.gathering_s = 8.0 / rates.l2_bandwidth
        self.slowed: Number | None = None
        if rates.walk or rates.reread:
            self._slow(self._addressing(rates))
        if rates.channel:
            self._slow(self._crowd(rates))
        if rates.small:
            self._slow(self._small(rates))
        if rates.ragged_batch:
            self._slow(where(_off(self.n) & _off(self.k), 1.0 + rates.ragged_batch, 1.0))
        if rates.ragged != 1.0 or rates.bounds != 1.0:
            off = off_lines(self.m, self.n, self.k)
            self.power = self.power * where(off, rates.ragged, 1.0)
            if rates.bounds != 1.0:
                self._slow(where(off, rates.bounds, 1.0))
        if rates.pause_s:
            self.power = maximum(0.0, self.power - rates.pause_s)

    @property
    def flop(self) -> Number:
        """FLOP of each product."""
        return 2.0 * (self.outputs * self.k)

    @property
    def gather_s(self) -> Number:
        """Time of writing one part of k to L2, and of reading it again, in fp32 [s]."""
        return self.outputs * self.gathering_s

    def _of_batch(self, each: Number) -> Number:
        """Return what all products of a batch have."""
        return each if self.single else self.batch * each

    def _slow(self, factor: Number) -> None:
        """Let the arithmetic take longer by a factor."""
        self.slowed = factor if self.slowed is None else self.slowed * factor

    def at(self, places: NDArray[np.intp]) -> Sizes:
        """Return the sizes of some of the products."""
        part = object.__new__(type(self))
        for name, value in vars(self).items():
            setattr(part, name, value[places] if isinstance(value, np.ndarray) else value)
        return part

    def blocks(self, tile: Tile) -> Number:
        """Return the blocks that a tile makes of whole products."""
        rows = self.ceil(self.m * tile.per_row)
        blocks: Number = (rows if self.single else self.batch * rows) * self.ceil(self.n * tile.per_column)
        return blocks

    def pipeline(self, steps: Number, fill: Number, r: Rates) -> Pipeline:
        """Return what follows from a length of k, in steps, and from those that filling a pipeline takes as long as."""
        ceil = self.ceil
        filled = ceil(steps) + fill
        return filled, steps * r.waiting_s / filled if r.waiting_s else None

    def counts(self, r: Rates) -> Counts:
        """Return how many tiles of each height and width cover the output."""
        ceil, m, n, batch = self.ceil, self.m, self.n, self.batch
        rows, columns = {}, {}
        for per_row in r.heights:
            rows[per_row] = ceil(m * per_row) if self.single else batch * ceil(m * per_row)
        for per_column in r.widths:
            columns[per_column] = ceil(n * per_column)
        return rows, columns

    def _super_tile(self, m: Number, n: Number, r: Rates) -> tuple[Number, Number]:
        """Return the rows and columns that one wave of blocks works on: as square as the output lets it be."""
        area = r.sm_count * WAVE_OUTPUTS
        lowered = self.lowered
        rows = lowered(m, area**0.5)
        return rows, lowered(n, area / rows)

    def _addressing(self, r: Rates) -> Number:
        """Return the time with what rows that lie far apart cost, over that without."""
        walks = self._walks(r)
        slower: Number = where(off_lines(self.m, self.n, self.k), self._rereads(r), walks) if r.reread else walks
        return slower

    def _rereads(self, r: Rates) -> Number:
        """Return the time with weights that are read again for each row of tiles, over that of the arithmetic."""
        one_b = r.product.b_bytes * self.n * self.k
        share = minimum(1.0, maximum(self.n / (REREAD_COLUMNS * r.sm_count), one_b / REREAD_BYTES))
        rest = self.m - 128.0 * (ceil(self.m / 128.0) - 1.0)
        narrow = where(rest <= 64.0, REREAD_NARROW, 1.0)
        again = r.reread * (self.k / 256.0) ** REREAD_POWER * narrow
        again = again * share * (self.m / (self.m + REREAD_ROWS)) ** 0.5
        together: Number = (1.0 + again**4.0) ** 0.25  # resources overlap as in `times.POWER`
        return together

    def _walks(self, r: Rates) -> Number:
        """Return the time with the addresses that translation does not reach, over that without.

        The rows of A and of the weights lie k elements apart, so that the operands of a wave spread over
        (rows + columns) k size bytes, however little of them it reads in a step. Blocks go down the rows first, so that
        the more rows a product has, the farther a wave spreads.
        """
        rows = minimum(self.m, 128.0 * r.sm_count)
        columns = minimum(self.n, r.sm_count * WAVE_OUTPUTS / maximum(rows, BLOCK_ROWS))
        spread = r.product.input_bytes * self.k * (rows + columns)
        return 1.0 + r.walk * maximum(0.0, 1.0 - REACH_BYTES / spread)

    def _crowd(self, r: Rates) -> Number:
        """Return the time with rows that lie in few channels of memory, over that with rows in all of them.

        Channels take turns by addresses, so that rows which a large power of two of bytes separates share one: from
        `CHANNEL_BYTES` on the time grows with each doubling, to its whole at four times as much.
        """
        stride = np.asarray(self.k * r.product.input_bytes, dtype=np.int64)
        power = np.log2((stride & -stride) / CHANNEL_BYTES)
        crowd = 1.0 + r.channel * np.clip(power / 2.0, 0.0, 1.0)
        return crowd if crowd.ndim else float(crowd)

    def _small(self, r: Rates) -> Number:
        """Return the time of a batch of small products, over that with the kernels of large ones.

        It holds for sizes up to `SMALL` and fades until twice as much; it sets in as B outgrows A, or ``SMALL_B``.
        """
        fading = maximum(0.0, minimum(1.0, 2.0 - maximum(maximum(self.m, self.n), self.k) / SMALL))
        wide = maximum(0.0, minimum(1.0, 2.0 * (minimum(self.n, self.k) / self.m - 1.0)))
        large = maximum(0.0, minimum(1.0, self.n * self.k / SMALL_B - 2.5))
        padded = 128.0 * ceil(self.m / 128.0) / maximum(self.m, FEWEST_ROWS)
        slower: Number = 1.0 + fading * maximum(((1.0 + r.small) * padded**0.5 - 1.0) * wide, r.small * large)
        return slower

    def _read(self, r: Rates) -> tuple[Number, Number]:
        """Return the bytes of A and of B that one product reads from device memory, where L2 holds nothing before."""
        one_a, one_b = r.product.input_bytes * self.k * self.m, r.product.b_bytes * self.k * self.n
        both = one_a + one_b
        more: Any = both > r.l2_bytes
        if not anywhere(more):
            return one_a, one_b
        if isinstance(one_a, np.ndarray) and isinstance(one_b, np.ndarray):
            some = Some(more, more.shape)
            if not some.are_many:
                of_a, of_b = self._times_read(some.of(both), some.of(self.m), some.of(self.n), r)
                one_a[some.places] *= of_a
                one_b[some.places] *= of_b
                return one_a, one_b
        of_a, of_b = self._times_read(both, self.m, self.n, r)
        return one_a * of_a, one_b * of_b

    def _times_read(self, both: Number, m: Number, n: Number, r: Rates) -> tuple[Number, Number]:
        """Return how often A and B are read: panels of both again for each super-tile, as far as they exceed L2."""
        rows, columns = self._super_tile(m, n, r)
        again = self.raised(1.0 - r.l2_bytes / both, 0.0)
        return 1.0 + again * (n / columns - 1.0), 1.0 + again * (m / rows - 1.0)

    def _traffic(self, a: Number, b: Number, r: Rates) -> Number:
        """Return the bytes that would take as long as all that is read, ``a`` and ``b``, and written [B].

        What is read in short pieces takes longer than its bytes, what L2 holds is faster.
        """
        written = r.product.output_bytes * self.outputs
        if r.c["stride"] != 1.0:
            # The rows of A are read in short pieces, each from another page of DRAM where k is long.
            a = a * (1.0 + (r.c["stride"] - 1.0) * minimum(1.0, self.k / PAGE_OF_K))
        read = self._of_batch(a + b)
        if r.copies and r.l2_bytes:
            held_b = r.copies * r.product.b_bytes * self.n * self.k
            resident = self._of_batch(r.product.input_bytes * self.m * self.k + held_b) + written
            read = read * (1.0 - fitting_share(resident, r.l2_bytes) * (1.0 - 1.0 / r.resident_speed))
        return read + written
