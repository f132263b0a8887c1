"""Kernels of cuBLAS that work unlike tiles of multiply-adds in fp32: vectors, fp64 on tensor cores, and few rows.

The last two are Hopper's, by the names and times of kernels on an H200 (torch.profiler, and own records, torch 2.11.0,
2026-11-27; every product named here was in view).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from perfmodel.core.dtypes import dtype_bytes
from perfmodel.core.work import Number, anywhere, ceil, clipped, maximum, minimum, where
from perfmodel.operators.gemm import Gemm
from perfmodel.prediction.latency.family import Values
from perfmodel.prediction.latency.gemm.rates import Product, Some, is_fp32
from perfmodel.prediction.latency.machine import Machine

#: engine of the machines whose kernels these are
INSTRUCTION = "wgmma"
#: side of a tile and length of a step in fp64, as the kernels' names say (sm90_xmma_gemm_f64f64 ... tilesize64x64x32
#: _stage3): its three stages of both operands are 192 KiB, so that an SM holds one block
SIDE, STEP, FP64_BYTES = 64.0, 32.0, 8.0
#: SM clocks of a block beside its steps, and steps whose rows begin off 16 bytes over others (aligna8). Their sum with
#: the results' traffic, which nothing overlaps, is 0.86 to 1.14 times what ten batches of 2 to 223 products and one of
#: 6691 x 1216 x 896 take, where the tiles of fp32 leave 0.51 to 1.48
BLOCK_CLOCKS, NARROW = 1090.0, 1.65
#: rows of A up to which a kernel without tiles runs (gemmSN_NN_kernel, gemvx), the share of the datasheet bandwidth
#: that it draws, and the least that it takes [SM clocks], if tiles do not take less: at all, and for each term of a sum
#: (their ratio is assumed). 3 x 360 x 752 in a batch of 133 takes 48.7 us in fp32 (85 by tiles), 2 x 1472 x 11648 45.1
#: in fp64, and 1 x 56 x 806 in a batch of 5 5.7 (21 by tiles)
FEW_ROWS, FEW_SHARE, FEW_CLOCKS, TERM_CLOCKS = 4.0, 0.65, 2000.0, 6.3
#: rows from which tiles are known to run: nine products of 8 rows say so. Where between them the choice changes, nobody
#: measured; the time lies between both, as its mean in ln
TILE_ROWS = 8.0
#: share of the datasheet bandwidth that a product with a vector draws (gemv2T, gemvNSP), of which tables and records
#: have none: 256 x 1 x 131072 take 212 us on an RTX A6000 and 155 on an RTX 3090 Ti (ScalingIntelligence/KernelBench,
#: results/timing, both in view), a third of what tiles take. Single products of 3 columns run in tiles (NeuSight); what
#: runs 2, nobody measured: there the time lies between both, as its mean in ln
VECTOR_SHARE, TILE_COLUMNS = 0.85, 3.0
#: the same of fp64, of whose products without tensor cores no table has a row: as kernels of few rows in fp32 do
#: (`TILE_ROWS`). A tile's 32 rows take a board with few lanes 50 times as long as a stream
TILE_COLUMNS_FP64 = TILE_ROWS
#: the same of a batch of products with a vector, whose kernels nobody measured either. Batches of 2 columns run in
#: tiles (NeuSight), which take up to 48 times as long as a stream (A100). Assumed, so that a column more takes at most
#: three times as long
BATCH_IN_TILES = 0.75
#: SM clocks for each term of a sum that the threads of a block share, since its terms lie side by side in the larger
#: operand: assumed, some hundred clocks for what some hundred threads load at once. Else each thread has its own sums,
#: where there are as many as a warp has threads
SHARED_CLOCKS, LANES = 1.0, 32.0


def has_own_kernels(machine: Machine) -> bool:
    """Return whether a machine runs these kernels for some products: NVIDIA's."""
    others = machine.matrix_instruction in ("mfma", "wmma", "dpas")
    return is_fp32(machine) and machine.dtype in ("fp32", "fp64") and not others


def is_narrow(product: Product | Gemm) -> bool:
    """Return whether any product may run in other kernels than tiles: none without few rows or columns does."""
    return anywhere(product.m < TILE_ROWS) or anywhere(product.n < TILE_ROWS)


def in_tiles(product: Product | Gemm, machine: Machine) -> Number:
    """Return how likely products run in tiles: 0 for vectors, on Hopper for few rows, and 1 for all but narrow ones."""
    rows = machine.matrix_instruction != INSTRUCTION  # on Hopper few rows, down to one, have a kernel, columns do not
    narrow = minimum(product.m, product.n) if rows else product.n
    tiled, batched = _single_in_tiles(narrow, machine), product.batch > 1
    if anywhere(batched):
        tiled = where(batched, minimum(BATCH_IN_TILES * narrow, 1.0), tiled)
    if rows:
        return tiled
    return minimum(tiled, clipped((product.m - FEW_ROWS) / (TILE_ROWS - FEW_ROWS), 0.0, 1.0))


def _single_in_tiles(narrow: Number, machine: Machine) -> Number:
    last = TILE_COLUMNS_FP64 if machine.dtype == "fp64" else TILE_COLUMNS
    return clipped((narrow - 1.0) / (last - 1.0), 0.0, 1.0)


def own_s(product: Product, body_s: Number, machine: Machine, c: Values) -> Number:
    """Return the time of products without their launch [s], given that of tiles of multiply-adds in fp32.

    Where blocks of fp64 do not fill the SMs, a lone product's sum may be split, and keeps its time; batches are not.
    From where they do until every SM has two, nobody measured which it is: the time lies between both.
    """
    time = body_s
    if machine.engine == "tensor" and machine.dtype == "fp64":
        blocks = ceil(product.m / SIDE) * ceil(product.n / SIDE) * product.batch
        in_blocks = maximum(_fp64_s(product, blocks, machine, c), moved_s(product, machine) / c["eta"])
        whole = clipped(blocks / machine.sm_count - 1.0, 0.0, 1.0)
        longer = time ** (1.0 - whole) * maximum(time, in_blocks) ** whole
        time = where(product.batch > 1, in_blocks, longer)
    if not is_narrow(product):
        return time
    tiled = in_tiles(product, machine)
    narrow: Any = tiled < 1.0
    if not anywhere(narrow):
        return time
    if not isinstance(time, np.ndarray):
        return _narrow_s(product, time, body_s, tiled, machine)
    # tiles keep their time to the last bit, whatever else there is in a sweep
    some, found = Some(narrow, time.shape), time.copy()
    found[some.places] = _narrow_s(product.at(some), some.of(time), some.of(body_s), some.of(tiled), machine)
    return found


def _narrow_s(product: Product, time: Number, body_s: Number, tiled: Number, machine: Machine) -> Number:
    """Return the time of narrow products [s].

    Parameters
    ----------
    product, machine : as for `own_s`.
    time, body_s : time of tiles, and of those of multiply-adds in fp32 [s].
    tiled : how likely they run in tiles: `in_tiles`.
    """
    moved = moved_s(product, machine)
    each = where(product.rows_apart, SHARED_CLOCKS, _own_sum_clocks(product))
    clocks = FEW_CLOCKS + each * product.k
    # a kernel without tiles pads nothing, and computes what there is
    computed = 2.0 * product.batch * product.m * product.n * product.k / machine.peak_flop_per_s
    least = minimum(body_s, maximum(clocks / machine.clock_hz, computed))
    if machine.matrix_instruction == INSTRUCTION:
        is_vector = minimum(product.m, product.n) <= 1.0
        streamed = maximum(moved / where(is_vector, VECTOR_SHARE, FEW_SHARE), least)
    else:
        streamed = minimum(maximum(moved / VECTOR_SHARE, least), body_s)
    found: Number = streamed * (time / streamed) ** tiled
    return found


def _own_sum_clocks(product: Product) -> Number:
    """Return the clocks of a term where the columns of B lie apart, so that threads may have sums of their own."""
    own = clipped(TERM_CLOCKS * product.n / LANES, SHARED_CLOCKS, TERM_CLOCKS)
    clocks: Number = where(product.n <= product.m, SHARED_CLOCKS, own)
    return clocks


def layout_matters(product: Gemm, machine: Machine) -> Any:
    """Return where a product without a bias is much faster if B lies [n, k], as the weights of a linear layer do."""
    narrow: Any = in_tiles(product, machine) < 1.0
    own = dtype_bytes(product.dtype)
    sizes = Product(product.m, product.n, product.k, product.batch, own, own)
    if not isinstance(narrow, np.ndarray):
        return narrow and _waits_for_sums(sizes, machine)
    some = Some(narrow, product.shape)
    found = np.zeros(product.shape, bool)
    found[some.places] = _waits_for_sums(sizes.at(some), machine)
    return found


def _waits_for_sums(product: Product, machine: Machine) -> Any:
    """Return whether threads with sums of their own take longer than to stream the larger operand."""
    clocks = (_own_sum_clocks(product) - SHARED_CLOCKS) * product.k
    streamed = 1.0 * product.k * product.n * product.input_bytes * product.batch
    return clocks / machine.clock_hz > streamed / machine.bandwidth_bytes_per_s


def _fp64_s(product: Product, blocks: Number, machine: Machine, c: Values) -> Number:
    """Return the time of the blocks that SMs work through one after another, and of writing the results [s]."""
    step = 2.0 * SIDE * SIDE * STEP * machine.sm_count / machine.peak_flop_per_s
    odd = (product.k % 2 != 0) | (product.n % 2 != 0)
    of_block = ceil(product.k / STEP) * step * where(odd, NARROW, 1.0) + BLOCK_CLOCKS / machine.clock_hz
    written = 1.0 * product.batch * product.m * product.n * FP64_BYTES / (c["eta"] * machine.bandwidth_bytes_per_s)
    whole: Number = ceil(blocks / machine.sm_count) * of_block + written
    return whole


def moved_s(product: Product, machine: Machine) -> Number:
    """Return the time of operands and results at the datasheet's bandwidth [s]."""
    a, b, out = product.m * product.k, product.k * product.n, product.m * product.n
    each = 1.0 * a * product.input_bytes + 1.0 * b * product.b_bytes + 1.0 * out * product.output_bytes
    return product.batch * each / machine.bandwidth_bytes_per_s
