"""Matrix products whose rows begin off 16 bytes, so that neither TMA nor a vector load reads them.

Loads are then as narrow as the rows' alignment, each of them an instruction of a thread, which takes the SM longer than
the arithmetic: with u clocks a load and g bytes of alignment, a block of tm x tn outputs takes for each element of k

    ((2 tm tn / P)^4 + (u (tm + tn) size / (g f))^4)^(1/4),   P the peak of an SM, f its clock,

and works through whole steps of k and the fill of its pipeline; k is split as far as that fills the SMs.
"""

from __future__ import annotations

from perfmodel.core.vocabulary import Limiter
from perfmodel.core.work import Number, anywhere, ceil, floor, maximum, minimum, number, where
from perfmodel.prediction.latency.gemm.rates import MOST_PARTS, SPLIT_WAVES, Product
from perfmodel.prediction.latency.machine import Machine
from perfmodel.prediction.latency.terms import Term

ALIGNMENT = Term("alignment", Limiter.COMPUTE, "loads narrower than 16 bytes, since rows begin off such addresses")
#: bytes of a vector load, and of the alignment that a tensor map asks of rows (CUDA driver API, cuTensorMapEncodeTiled)
VECTOR_BYTES = 16.0
#: SM clocks of a narrow load in cuBLAS's kernels (CUTLASS's align1 and align2), chosen by hand on two rows: 115 TFLOP/s
#: of 2047 x 8192 x 3073 in bf16 on an H100 (float8_experimental, pull request 145), and our own 16.4 us of 67 x 907 x
#: 1913; they come out 11 % too slow and 14 % too fast. Six more products with odd k of that pull request are within 22
#: %, 8 % off in the mean (a seventh, 8193 x 5008 x 2501, has the rate of its padded twin there, and is predicted five
#: times as slow); those of an RTX 4090 at 2055 to 2073 (PyTorch, issue 181718) 19 to 29 % too slow, as the aligned one
#: there is by 11 %; a bf16 layer of 141 x 30522 x 512 in a trace of another H100, with align2, 14 % too slow
LOAD_CLOCKS = 0.29
#: the same of Triton's kernels, which know of sizes only whether 16 divides them, and else load element by element:
#: that of its layers of experts in 16 bits on five machines (`perfmodel.prediction.latency.moe`). Two products by
#: perfmodel's own kernel on an H100 whose k 16 does not divide come out 7 and 20 % too fast; neither was fitted
TRITON, TRITON_ELEMENTS, TRITON_CLOCKS = "triton", 16.0, 0.14
#: engines whose kernels these are, and the sides of their square tiles
INSTRUCTIONS, SIDES = ("mma.sync", "wgmma", "tcgen05"), (64.0, 128.0)
#: length of k that a block's pipeline takes to fill, its step, and share of the last wave's idle SMs that is lost:
#: those of plain products (`rates`)
FILL, STEP, QUANTUM = 64.0, 32.0, 0.4


def narrow_s(product: Product, machine: Machine, library: str, split_s: float) -> Number:
    """Return the least time of products whose rows begin off 16 bytes [s]; 0 for others.

    Rows are those of A, k elements long, and of the outputs, n long; B has one of both. A product of one row has a
    kernel of its own, and 8-bit ones with such rows none.

    Parameters
    ----------
    product, machine : sizes, and the machine with the peak of the engine.
    library : whose kernels run.
    split_s : start of the reduction of the parts of k [s].
    """
    if machine.matrix_instruction not in INSTRUCTIONS or product.input_bytes < 2.0:
        return 0.0
    loads = _loads(product, library)
    if not anywhere(loads):
        return 0.0
    clocks = TRITON_CLOCKS if library == TRITON else LOAD_CLOCKS
    most, sides = (1.0, SIDES[-1:]) if library == TRITON else (MOST_PARTS, SIDES)
    time: Number = where(loads > 0.0, _body_s(product, machine, clocks * loads, split_s, sides, most), 0.0)
    return time


def beside(body_s: Number, loading_s: Number) -> Number:
    """Return the time of products that narrow loads hold up, as other resources overlap [s]."""
    time: Number = where(loading_s > 0.0, (body_s**4.0 + loading_s**4.0) ** 0.25, body_s)
    return time


def _loads(product: Product, library: str) -> Number:
    """Return the loads of an element, 1 or a part of it; 0 where they are whole vectors."""
    off: Number = 0.0
    if library == TRITON:
        off = maximum(1.0 * (product.k % TRITON_ELEMENTS != 0), 1.0 * (product.n % TRITON_ELEMENTS != 0))
    else:
        size, pitches = product.input_bytes, (product.k * product.input_bytes, product.n * product.output_bytes)
        bytes_ = VECTOR_BYTES / 2.0
        while bytes_ >= size:  # the narrowest that some row asks for
            loads = size / bytes_
            off = maximum(off, maximum(*(loads * (pitch % (2.0 * bytes_) != 0) for pitch in pitches)))
            bytes_ /= 2.0
    several: Number = number(product.m > 1.0) * number(product.n > 1.0)
    return off * several


def _body_s(
    product: Product, machine: Machine, load_clocks: Number, split_s: float, sides: tuple[float, ...], most: float
) -> Number:
    """Return the least time of tiles and splits without the launch [s]."""
    least: Number = float("inf")
    peak = machine.peak_flop_per_s / machine.sm_count
    for side in sides:
        # A load beyond the last row is masked, and takes none.
        rows = minimum(product.m, side) + minimum(product.n, side)
        blocks = product.batch * ceil(product.m / side) * ceil(product.n / side)
        parts = minimum(maximum(floor(SPLIT_WAVES * machine.sm_count / blocks), 1.0), most)
        loading = rows * load_clocks / machine.clock_hz
        step_s: Number = ((2.0 * side * side / peak) ** 4.0 + loading**4.0) ** 0.25
        for split in (1.0, parts):
            waves = blocks * split / machine.sm_count
            busy = maximum(1.0, (1.0 - QUANTUM) * waves + QUANTUM * ceil(waves))
            k = ceil(product.k / split / STEP) * STEP + FILL
            least = minimum(least, busy * k * step_s + split_s * (1.0 * (split > 1.0)))
    return least
