"""Matrix products whose rows begin off 16 bytes, so that neither TMA nor a vector load reads them.

Loads are then as narrow as the rows' alignment, each of them an instruction of a thread, which takes the SM longer than
the arithmetic: with u clocks a load and g bytes of alignment, a block of tm x tn outputs takes for each element of k

    ((2 tm tn / P)^4 + (u (tm + tn) size / (g f))^4)^(1/4),   P the peak of an SM, f its clock,

and works through whole steps of k and the fill of its pipeline, waiting for the loads of each step; k is split as far
as that fills the SMs. Rows beyond the last one are masked: their loads take as long in the first half of a tile's side,
and none beyond it.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
from numpy.typing import NDArray

from perfmodel.core.dtypes import dtype_bytes
from perfmodel.core.hardware import Hardware
from perfmodel.core.vocabulary import ErrorSource, Limiter
from perfmodel.core.work import Number, anywhere, ceil, clipped, floor, minimum, number, raised
from perfmodel.operators.base import Operator
from perfmodel.operators.gemm import Gemm
from perfmodel.prediction.conditions import Conditions
from perfmodel.prediction.latency.doubts import Doubt
from perfmodel.prediction.latency.gemm.rates import MOST_PARTS, SPLIT_WAVES, Product, Some
from perfmodel.prediction.latency.gemm.sectors import joined, pitches_bits, pitches_of
from perfmodel.prediction.latency.gemm.sizes import fourth_power
from perfmodel.prediction.latency.gemm.times import fourth_root
from perfmodel.prediction.latency.machine import Machine
from perfmodel.prediction.latency.terms import Term

ALIGNMENT = Term("alignment", Limiter.COMPUTE, "loads narrower than 16 bytes, since rows begin off such addresses")
#: bytes of a vector load, and of the alignment that a tensor map asks of rows (CUDA driver API, cuTensorMapEncodeTiled)
VECTOR_BYTES = 16
#: pitch of rows, modulo a vector [B] -> loads of a byte: one of the narrowest alignment, the lowest bit of the pitch
_LOADED = np.array([0.0, *(1.0 / (pitch & -pitch) for pitch in range(1, VECTOR_BYTES))])
#: SM clocks of a narrow load in cuBLAS's kernels (CUTLASS's align1 and align2), and clocks that a step of k waits for
#: its own: chosen with 49 products of an H100 and an H200 in view (`examples/records`), which are 16 % off. Seven with
#: odd k in bf16 on another H100 (float8_experimental, pull request 145; an eighth, 8193 x 5008 x 2501, has the rate of
#: its padded twin there) and a layer of 141 x 30522 x 512 with align2 in a trace had been in view before
LOAD_CLOCKS, WAIT_CLOCKS = 0.22, 300.0
#: standard deviation that this adds to ln(measured / predicted): the root mean square of the 49 is 0.24. All are of
#: Hopper, and nothing tells how the kernels of others load but products of an RTX 4090 (PyTorch, issue 181718). At
#: launch it is assumed to hold for half of the time
DOUBT = (0.2, 0.4, 0.4)
#: the same of engines whose operands pass through no register, so that narrow loads take another way of which nothing
#: is known, or another engine's kernels: the time lies between padded rows' and these, up to 12 times as long. Assumed,
#: to reach most of the way
DOUBT_OF_TCGEN05 = (0.4, 0.9, 0.9)
#: SM clocks of a load of Triton's kernels, which know of sizes only whether 16 divides them, and else load element by
#: element: that of its layers of experts in 16 bits on five machines (`perfmodel.prediction.latency.moe`). Two products
#: by perfmodel's own kernel on an H100 whose k 16 does not divide come out 7 and 20 % too fast; neither was fitted
TRITON, TRITON_ELEMENTS, TRITON_CLOCKS = "triton", 16, 0.14
#: engines whose kernels these are, and the sides of their square tiles
INSTRUCTIONS, SIDES = ("mma.sync", "wgmma", "tcgen05"), (64.0, 128.0)
#: length of k that a block's pipeline takes to fill, its step, and share of the last wave's idle SMs that is lost:
#: those of plain products (`rates`)
FILL, STEP, QUANTUM = 64.0, 32.0, 0.4


def narrow_s(product: Product, machine: Machine, library: str, split_s: float, pitches: Any = None) -> Number:
    """Return the least time of products whose rows begin off 16 bytes [s]; 0 for others.

    Rows are those of A, k elements long, and of the outputs, n long; B has one of both. A product of one row has a
    kernel of its own, and 8-bit ones with such rows none.

    Parameters
    ----------
    product, machine : sizes, and the machine with the peak of the engine.
    library : whose kernels run.
    split_s : start of the reduction of the parts of k [s].
    pitches : of the product's rows, if they are known: `perfmodel.prediction.latency.gemm.sectors.pitches_of`.
    """
    if machine.matrix_instruction not in INSTRUCTIONS or product.input_bytes < 2.0:
        return 0.0
    divisor = 8 * VECTOR_BYTES
    if library == TRITON:
        pitches, divisor = _pitches_in_triton(product.k, product.n)
    elif pitches is None:
        pitches = pitches_of(product)
    off = _off(pitches, divisor, product.m, product.n)
    if not anywhere(off):
        return 0.0
    if not isinstance(off, np.ndarray):
        return _body_s(product, _loads(product, pitches, library), machine, library, split_s)
    some = Some(off, off.shape)
    if some.are_many:
        every: Number = _body_s(product, _loads(product, pitches, library), machine, library, split_s)
        every *= number(off)  # numpy chooses by a mask at half the speed
        return every
    time = np.zeros(off.shape)
    time[some.places] = _body_s(product.at(some), _loads(product, some.of(pitches), library), machine, library, split_s)
    return time


def off_vectors(m: Number, n: Number, k: Number, input_bytes: float, output_bytes: float, library: str) -> Any:
    """Return which products have rows that begin off 16 bytes, so that tensor cores' usual kernels do not take them."""
    if library == TRITON:
        return _off(*_pitches_in_triton(k, n), m, n)
    return _off(pitches_bits(k, n, input_bytes, output_bytes), 8 * VECTOR_BYTES, m, n)


def _pitches_in_triton(k: Number, n: Number) -> tuple[Any, int]:
    """Return the pitches of the rows of A and of the outputs, joined, and what divides them where loads are wide."""
    return joined(k, n), TRITON_ELEMENTS


def _off(pitches: Any, divisor: int, m: Number, n: Number) -> Any:
    """Return which products have some pitch that a power of two does not divide; those of one row stream."""
    off = pitches & (divisor - 1) != 0
    return off & (m > 1.0) & (n > 1.0) if anywhere(off) else False


def beside(body_s: Number, loading_s: Number) -> Number:
    """Return the time of products that narrow loads hold up, as other resources overlap [s]."""
    if not isinstance(loading_s, np.ndarray):
        return fourth_root(fourth_power(body_s) + fourth_power(loading_s)) if loading_s > 0.0 else body_s
    time: NDArray[np.float64] = fourth_root(fourth_power(loading_s) + fourth_power(body_s))
    np.copyto(time, body_s, where=loading_s <= 0.0)
    return time


def _loads(product: Product, pitches: Any, library: str) -> Number:
    """Return the loads of an element of products whose rows begin off 16 bytes: 1, or a part of it."""
    if library == TRITON:
        return 1.0
    loads = _loads_by_pitch(product.input_bytes)
    found: Number = loads.take(pitches) if isinstance(pitches, np.ndarray) else float(loads[pitches & 255])
    return found


@functools.cache
def _loads_by_pitch(input_bytes: float) -> NDArray[np.float64]:
    """Return the loads of an element for each lowest byte of the pitches [bits]."""
    loads: NDArray[np.float64] = _LOADED[(np.arange(256) >> 3) & (VECTOR_BYTES - 1)] * input_bytes
    return np.minimum(loads, 1.0, out=loads)


def _body_s(product: Product, loads: Number, machine: Machine, library: str, split_s: float) -> Number:
    """Return the least time of tiles and splits without the launch [s]."""
    triton = library == TRITON
    sides = SIDES[-1:] if triton else SIDES
    load_s = (TRITON_CLOCKS if triton else LOAD_CLOCKS) / machine.clock_hz * loads
    wait_s = 0.0 if triton else WAIT_CLOCKS / machine.clock_hz
    steps = product.k * (1.0 / STEP)
    whole = ceil(steps)
    filled, waited_s = whole + FILL / STEP, whole * wait_s
    least: Number = float("inf")
    for side in sides:
        waves = ceil(product.m * (1.0 / side))
        waves = waves * ceil(product.n * (1.0 / side)) * (product.batch / machine.sm_count)
        arithmetic_s = 2.0 * side * side * STEP * machine.sm_count / machine.peak_flop_per_s
        step_s = (clipped(product.m, side / 2.0, side) + clipped(product.n, side / 2.0, side)) * (STEP * load_s)
        step_s = fourth_root(fourth_power(step_s) + arithmetic_s**4)
        least = minimum(least, _rounds(waves) * filled * step_s + waited_s)
        if not triton:
            least = _split_s(least, steps, waves, step_s, wait_s, split_s)
    return least


def _split_s(least: Number, steps: Number, waves: Number, step_s: Number, wait_s: float, split_s: float) -> Number:
    """Return the least time with that of k in parts [s], of products that fill at most half of two waves without."""
    few = waves <= 0.5 * SPLIT_WAVES
    if not anywhere(few):
        return least
    if isinstance(few, np.ndarray) and isinstance(least, np.ndarray):
        some = Some(few, least.shape)
        if not some.are_many:
            in_parts = _in_parts_s(some.of(steps), some.of(waves), some.of(step_s), wait_s, split_s)
            least[some.places] = minimum(some.of(least), in_parts)
            return least
    return minimum(least, _in_parts_s(steps, waves, step_s, wait_s, split_s))


def _in_parts_s(steps: Number, waves: Number, step_s: Number, wait_s: float, split_s: float) -> Number:
    """Return the time of products whose k is split in as many parts as fill two waves [s]."""
    parts = clipped(floor(SPLIT_WAVES / waves), 1.0, MOST_PARTS)
    whole = ceil(steps / parts)
    time: Number = _rounds(waves * parts) * (whole + FILL / STEP) * step_s + (whole * wait_s + split_s)
    return time


def _rounds(waves: Number) -> Any:
    """Return the blocks that an SM has time for, with idle SMs in the last wave."""
    rounds = ceil(waves) * QUANTUM
    rounds += (1.0 - QUANTUM) * waves
    return raised(rounds, 1.0)


def _off_vectors(op: Operator, machine: Machine, conditions: Conditions) -> Any:
    """Whether the rows of a product begin off 16 bytes: no table has such, and few rows of Hopper tell of them."""
    if not isinstance(op, Gemm):
        return False
    return off_vectors(op.m, op.n, op.k, dtype_bytes(op.dtype), dtype_bytes(op.out_dtype), conditions.library)


def _of_engine(hardware: Hardware) -> tuple[float, float, float] | None:
    """Return the deviation on engines of which no row tells how their kernels load."""
    return DOUBT_OF_TCGEN05 if hardware.matrix_instruction == "tcgen05" else None


OFF_VECTORS = Doubt(ErrorSource.EXTRAPOLATION, _off_vectors, DOUBT, of_machine=_of_engine)
