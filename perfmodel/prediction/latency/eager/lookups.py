"""Look-ups by index and sums into tables as PyTorch runs them."""

from __future__ import annotations

from typing import Any

import numpy as np

from perfmodel.core.dtypes import dtype_bytes
from perfmodel.core.vocabulary import ErrorSource
from perfmodel.core.work import Number, plain
from perfmodel.operators.embedding import Embedding
from perfmodel.operators.embedding_bag import EmbeddingBag
from perfmodel.operators.gather import Gather
from perfmodel.operators.index_select import IndexSelect
from perfmodel.operators.lookup import SECTOR_BYTES, distinct, harmonic
from perfmodel.operators.scatter_add import ScatterAdd
from perfmodel.prediction.conditions import Conditions
from perfmodel.prediction.latency.doubts import Doubt
from perfmodel.prediction.latency.eager.passes import Kernels, Pass, among, eager_family, is_eager
from perfmodel.prediction.latency.family import Constant, Values
from perfmodel.prediction.latency.machine import Machine

INDEX_BYTES = 8.0
#: bytes that a miss of L2 fetches: two sectors (CUDA runtime, cudaLimitMaxL2FetchGranularity; its usual value)
FETCHED_BYTES = 64.0
#: kernels beside the sort of embedding's gradient: unique rows, their counts and offsets by scans, partial sums, and a
#: wait of the host for the number of rows, as some more (Embedding.cu, EmbeddingBackwardKernel.cu)
GRADIENT_KERNELS = 30.0
#: passes of the sort of its indices: 8 bits of the rows of the table each, with indices of 8 B
DIGIT = 8.0

#: bytes of the vectors that rows are copied by, if they are whole numbers of them
VECTOR_BYTES = 16.0
#: bytes of a line of L2, whose sums one slice of L2 does one after another; sums into other lines do not wait
LINE_BYTES = 128.0
#: fixed part of a sum into a line, in sectors; set on an H100, torch 2.11.0, 2026-11-23: 1.76 ns a row of one sector
#: that all are added to, 4.72 ns a row of two lines
FIXED_SECTORS = 0.77
#: tokens up to which the gradient of an embedding sorts nothing, those of a step, and its cycles (EmbeddingBackward
#: kernel of Embedding.cu); set on one row of an H200 of the same kind
FEW_TOKENS, FEW_OF_STEP, FEW_CYCLES = 3072.0, 32.0, 3100.0

#: elements that a thread of gather takes one after another, each a load of its index and one that depends on it
#: (ScatterGatherKernel.cu, thread_work_size, whose check of the index stands between them), and the cycles of such a
#: load where neither is in a cache: 1,981 elements of 21 million take 9.9 us on an H200, 9,715 of 9.3 million 10.3
#: (own record, torch 2.11.0, 2026-11-27; both were in view). Where many wait at once, ``element`` holds it
THREAD_WORK, COLD_LOAD = 4.0, 1900.0
#: cycles that a thread of index_copy waits for the index of its element and for the element: two steps of a thread as
#: in `perfmodel.prediction.latency.eager.images`. Six calls of 3 to 88 tokens on an H200 take 3.1 to 4.7 us, of which
#: five (2026-11-27) were in view
COPY_WAIT = 1800.0

#: lanes of a warp, warps of embedding_bag, 1024 blocks of eight (EmbeddingBag.cu, _embedding_bag_cuda), and SM cycles
#: of an element of it: assumed, 25 instructions of a warp for each row, of four schedulers
LANES, BAG_WARPS, BAG_CYCLES = 32.0, 8192.0, 0.2

#: the release from which rows of whole vectors are summed by bulk reductions, on Hopper and later chips, and the dtypes
#: of such rows (github.com/pytorch/pytorch/pull/182675, May 2026: cp.reduce.async.bulk, sm_90; its first release is
#: assumed). Bulk reductions add a vector where a thread added an element: each takes as many cycles, assumed.
#: A row takes one reduction at least, whatever its width: in view of rows of 64 to 512 B on a GB200 (pull/183479), 70
#: SM cycles where a warp takes one row after another, and 23 where blocks take tiles of rows; between both
BULK_RELEASE, BULK_CAPABILITY, BULK_DTYPES = (2, 13), 9, ("fp64", "fp32", "fp16", "bf16")
BULK_ROW_CYCLES = 40.0

JUMP = Constant("jump", "B", 30.0, 1.0, 400.0, 0.3, "bytes that a stream moves while memory turns to another place")
ADD = Constant("add", "", 1.9, 0.2, 10.0, 0.2, "SM cycles of an element that index_add sums into a row")
ELEMENT = Constant("element", "", 0.87, 0.1, 5.0, 0.2, "SM cycles of an element of gather, scatter_add, index_copy")
ROW = Constant("row", "", 155.0, 10.0, 1000.0, 0.2, "SM cycles of one short block, one row of index_select")
CLASH = Constant("clash", "", 1.95, 0.3, 30.0, 0.3, "cycles of a sum into one sector of a line, that others wait for")
SUMMED = Constant("summed", "", 3.5, 0.2, 20.0, 0.3, "SM cycles of an element of embedding's gradient")


def missed(draws: Number, table: Number, each: Number, spread: str, held_bytes: Number) -> Number:
    """Return how many of some draws miss L2: places of ``each`` bytes, of which it keeps those drawn most often.

    L2 has room for ``held_bytes`` of them, and fetches these once.
    """
    draws, table = np.asarray(draws, dtype=np.float64), np.asarray(table, dtype=np.float64)
    kept = np.clip(held_bytes / each, 1.0, table)
    if spread == "same":
        return plain(np.ones(np.broadcast(draws, table).shape))
    share = kept / table if spread == "even" else np.minimum(harmonic(kept) / harmonic(table), 1.0)
    found = distinct(plain(np.maximum(draws * share, 1.0)), plain(np.ceil(kept)), spread)
    return plain(np.minimum(draws * (1.0 - share) + found, draws))


def _random(draws: Number, table: Number | None, row: Number, spread: str, machine: Machine, c: Values) -> Number:
    """Return what random rows of ``row`` bytes cost, in bytes of a stream [B]: whole fetches, and a jump to each.

    Rows shorter than a fetch share it with their neighbours. Without a table no place is drawn twice.
    """
    fetched = np.ceil(np.asarray(row) / FETCHED_BYTES) * FETCHED_BYTES
    if table is None:
        return draws * (fetched + c["jump"])
    places = np.maximum(np.asarray(table) * row / fetched, 1.0)
    held = c["fill"] * machine.l2_bytes / machine.l2_copies
    return missed(draws, places, fetched, spread, held) * (fetched + c["jump"])


def _sectors(row: Number) -> Number:
    return np.ceil(np.asarray(row) / SECTOR_BYTES) * SECTOR_BYTES


def _gather(op: Gather, size: float, c: Values, machine: Machine) -> list[Pass]:
    random = _random(op.numel, op.table, size, op.distribution, machine, c)
    streamed = 1.0 * op.numel * (INDEX_BYTES + size)
    cycles = c["element"] * op.numel
    cached = streamed + (0.0 if op.distribution == "same" else SECTOR_BYTES * op.numel)
    if not op.backward:
        waited = 0.0 if op.distribution == "same" else 2.0 * THREAD_WORK * COLD_LOAD / machine.clock_hz
        return [Pass(1.0, streamed + random, 1.0, cached, cycles, waited)]
    # zeros; then sums, each of which reads and writes its place
    zeros = [] if op.table is None else [Pass(1.0, 1.0 * op.table * size)]
    return [*zeros, Pass(1.0, streamed + 2.0 * random, 1.0, cached, cycles)]


def _select(rows: Number, cols: Number, table: Number | None, spread: str, size: float, c: Values,
            machine: Machine) -> Pass:  # fmt: skip
    """Return index_select, a block a row that copies vectors of 16 B (IndexKernelUtils.cu, vectorized gather).

    Rows that are no whole vectors take an element a thread, which waits for its index and for the element
    (Indexing.cu, indexSelectLargeIndex): 27,747 rows of 25 columns take 6.7 us in fp32 on an H200, a third of what a
    block a row would (own record, torch 2.11.0, 2026-11-27; in view).
    """
    row = 1.0 * cols * size
    vectors = np.asarray(row % VECTOR_BYTES == 0.0)
    moved = rows * (INDEX_BYTES + row) + _random(rows, table, row, spread, machine, c)
    cycles = np.where(vectors, c["row"] * rows, c["element"] * rows * cols)
    waited = np.where(vectors, 0.0, COPY_WAIT / machine.clock_hz)
    return Pass(1.0, moved, 1.0, 2.0 * rows * _sectors(row), cycles, waited)


def _index_select(op: IndexSelect, size: float, c: Values, machine: Machine) -> list[Pass]:
    if not op.backward:
        return [_select(op.rows, op.cols, op.table, op.distribution, size, c, machine)]
    table = op.rows if op.table is None else op.table
    zeros = [] if op.table is None else [Pass(1.0, 1.0 * table * op.cols * size)]
    added = ScatterAdd(rows=op.rows, cols=op.cols, table=table, distribution=op.distribution, dtype=op.dtype)
    return [*zeros, *_scatter_add(added, size, c, machine)]


def _scatter_add(op: ScatterAdd, size: float, c: Values, machine: Machine) -> list[Pass]:
    """Return index_add or scatter_add: an atomic sum an element, those into one row one after another."""
    return _sums(op, size, c, machine, c["element" if op.by_element else "add"] * op.rows * op.cols)


def _bulk_sums(op: ScatterAdd, size: float, c: Values, machine: Machine) -> list[Pass]:
    """Return index_add or scatter_add as a release after `BULK_RELEASE` runs them: an atomic sum a vector of 16 B."""
    elements = c["element" if op.by_element else "add"] * op.rows * op.cols
    vectors = op.rows * np.maximum(c["add"] * op.cols * size / VECTOR_BYTES, BULK_ROW_CYCLES)
    return _sums(op, size, c, machine, np.where(_sums_in_bulk(op, size, machine), vectors, elements))


def _sums_in_bulk(op: ScatterAdd, size: float, machine: Machine) -> Any:
    """Return which sums add whole vectors: a mask, or False where the chip or the dtype has none."""
    capability = machine.hardware.compute_capability.partition(".")[0] if machine.hardware else ""
    if not capability.isdigit() or int(capability) < BULK_CAPABILITY or op.dtype not in BULK_DTYPES:
        return False
    return np.asarray(1.0 * op.cols * size % VECTOR_BYTES == 0.0)


def _sums(op: ScatterAdd, size: float, c: Values, machine: Machine, cycles: Number) -> list[Pass]:
    """Return sums whose instructions take some SM cycles; the gradient selects rows."""
    if op.backward:
        return [_select(op.rows, op.cols, op.table, op.distribution, size, c, machine)]
    row = 1.0 * op.cols * size
    moved = op.rows * (INDEX_BYTES + row) + 2.0 * _random(op.rows, op.table, row, op.distribution, machine, c)
    sectors = np.minimum(_sectors(row), LINE_BYTES) / SECTOR_BYTES
    neighbours = np.maximum(np.floor(LINE_BYTES / np.maximum(row, 1.0)), 1.0)
    shared = {"same": 1.0, "zipf": harmonic(neighbours)}.get(op.distribution, neighbours)
    waited = c["clash"] * (FIXED_SECTORS + sectors) * op.multiplicity * shared / machine.clock_hz
    return [Pass(1.0, moved, 1.0, 0.0, cycles, waited)]


def _kv_write(op: Any, size: float, c: Values, machine: Machine) -> list[Pass]:
    """Return index_copy, an element a thread, after a conversion where the cache has another dtype."""
    numel = 2.0 * op.tokens * op.kv_heads * op.head_dim
    cache = dtype_bytes(op.cache_dtype)
    converted = [] if op.cache_dtype == op.dtype else [Pass(1.0, numel * (size + cache))]
    waited = COPY_WAIT / machine.clock_hz
    moved = 2.0 * numel * cache + INDEX_BYTES * op.tokens
    return [*converted, Pass(1.0, moved, 1.0, 0.0, c["element"] * numel, waited)]


def _embedding_bag(op: EmbeddingBag, size: float, c: Values, machine: Machine) -> list[Pass]:
    """Return embedding_bag: a thread of a bag and a column walks through the rows of the bag (EmbeddingBag.cu).

    `BAG_WARPS` warps, or as many as the SMs hold, take the bags and their groups of 32 columns one after another, and
    write the bag of each index. A step waits for an element alone, half of `COPY_WAIT` (assumed): its index lies beside
    the last one, in the same line.
    The gradient is that of an embedding, whose rows of dy are those of the bags (EmbeddingBackwardKernel.cu).
    """
    if op.backward:
        tokens = Embedding(tokens=op.tokens, vocab=op.vocab, dim=op.dim, unique=op.unique, backward=True)
        return _embedding(tokens, size, c, machine)
    row = 1.0 * op.dim * size
    moved = (
        op.tokens * 2.0 * INDEX_BYTES + _random(op.tokens, op.vocab, row, op.distribution, machine, c) + op.bags * row
    )
    warps = min(BAG_WARPS, machine.sm_count * machine.threads_per_sm / LANES)
    walks = np.ceil(op.bags * np.ceil(op.dim / LANES) / warps)
    waited = walks * op.pooling * 0.5 * COPY_WAIT / machine.clock_hz
    return [Pass(1.0, moved, 1.0, op.tokens * _sectors(row), BAG_CYCLES * op.tokens * op.dim, waited)]


def _embedding(op: Embedding, size: float, c: Values, machine: Machine) -> list[Pass]:
    """Return the gradient of an embedding: zeros, a sort of the indices, partial sums in fp32, and their sums.

    Few tokens are not sorted: each block of 32 columns walks through all of them.
    """
    passes = np.ceil(np.log2(np.maximum(op.vocab, 2.0)) / DIGIT)
    pair = 2.0 * INDEX_BYTES
    numel, sums = 1.0 * op.tokens * op.dim, 1.0 * op.unique * op.dim
    few = np.asarray(op.tokens) <= FEW_TOKENS
    walked = np.ceil(op.tokens / FEW_OF_STEP) * FEW_CYCLES / machine.clock_hz
    summed = Pass(GRADIENT_KERNELS, numel * size + sums * (8.0 + size), 1.0, 0.0, c["summed"] * numel)
    return [
        Pass(1.0, 1.0 * op.vocab * op.dim * size),
        among(few, Pass(1.0, (numel + 2.0 * sums) * size, waited_s=walked)),
        among(~few, Pass(2.0 * (2.0 * passes + 4.0), op.tokens * (2.0 * INDEX_BYTES + 2.0 * pair * passes))),
        among(~few, summed),
    ]


KERNELS: dict[str, Kernels] = {
    "gather": _gather,
    "index_select": _index_select,
    "scatter_add": _scatter_add,
    "kv_write": _kv_write,
    "embedding": _embedding,
    "embedding_bag": _embedding_bag,
}


def _applies(op: Any, machine: Machine, library: str) -> bool:
    return is_eager(op, machine, library) and (op.op != "embedding" or op.backward)


def _is_of_bags(op: Any, machine: Machine, conditions: Conditions) -> bool:
    return bool(op.op == "embedding_bag")


#: bags, of which no table has a row: a factor of two, as for every kind of kernel without rows
BAGS = Doubt(ErrorSource.KERNEL, _is_of_bags, (0.54, 0.54, 0.54))


def _is_bulk_sum(op: Any, machine: Machine, conditions: Conditions) -> Any:
    """Whether rows are summed by bulk reductions."""
    if not isinstance(op, ScatterAdd) or op.backward or conditions.is_before(*BULK_RELEASE):
        return False
    return _sums_in_bulk(op, dtype_bytes(op.dtype), machine)


#: sums by bulk reductions, of which no table has a row
BULK_SUMS = Doubt(ErrorSource.KERNEL, _is_bulk_sum, (0.54, 0.54, 0.54))

FAMILY = eager_family(
    "eager_lookup",
    (JUMP, ADD, ELEMENT, ROW, CLASH, SUMMED),
    KERNELS,
    _applies,
    (BAGS, BULK_SUMS),
    {"scatter_add": ((BULK_RELEASE, _bulk_sums),)},
)
