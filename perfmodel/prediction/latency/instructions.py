"""Which instructions a library's kernels multiply by, where a machine has slower and faster ones for the same operands.

GeForce cards of Blackwell add up in fp32 at half rate, but not in instructions whose operands have a scale for every 32
numbers (`microscaled` of a specification). A kernel may give plain operands scales of one.

CDNA 4 takes as many cycles for an instruction of CDNA 3 as for its own of twice the k: 16 for mfma_f32_16x16x16_f16 and
16x16x32_f16, in the table of latencies of github.com/ROCm/rocm-libraries, shared/origami.
"""

from __future__ import annotations

from dataclasses import replace

from perfmodel.core.dtypes import dtype_bytes
from perfmodel.core.hardware import Hardware, Peak
from perfmodel.operators.base import Operator
from perfmodel.operators.gemm import Gemm
from perfmodel.operators.scales import is_microscaled, may_be_microscaled
from perfmodel.prediction.latency.doubts import TUNED

#: libraries whose plain products in fp8 are cuBLASLt's, which have instructions with scales: on an RTX 5090 they reach
#: up to 740 TFLOP/s through cuBLASLt and 773 through torch, where plain instructions have 419 (two sources of
#: `examples/published`, in view)
OF_VENDOR = ("", "cublas", "cublaslt", "torch", "jax", "xla", "tensorflow")
#: whose kernels have plain instructions: CUTLASS's in PyTorch and vLLM, with scales of columns, reach 389 and 346
#: TFLOP/s on an RTX 5090 (pytorch-155991 and vllm-34424 of `examples/published`). That those of the other two engines
#: are CUTLASS's and Triton's as well, and that Triton's `dot` has no scales, is assumed
PLAIN = ("cutlass", "triton", "vllm", "sglang", "flashinfer")
#: compiler and chip whose 16-bit products are by instructions of half the k: TileLang chooses k = 16 on every chip of
#: AMD's (`_initialize_k_dim` of tilelang/intrinsics/mfma_macro_generator.py, github.com/tile-ai/tilelang @ 03af3e73)
OF_CDNA_3, CDNA_4 = "tilelang", "gfx950"


def launched(op: Operator, hardware: Hardware, peak: Peak | None, library: str) -> tuple[Peak | None, Peak | None]:
    """Return the peak of the instructions that a library's kernels run, and that of others that they may run.

    The second is None where the kernels are known, or where all instructions are as fast. Kernels by hand are taken to
    be as fast as the vendor's: those of an RTX 5090 of which anybody published times are.

    Parameters
    ----------
    op, hardware : the call.
    peak : what bounds its arithmetic: the peak of instructions for scaled operands, where these take the operands.
    library : as conditions name it; "" for any.
    """
    if peak is None or peak.engine != "tensor":
        return peak, None
    words = library.replace("/", "_").split("_")
    if OF_CDNA_3 in words and hardware.compute_capability == CDNA_4 and dtype_bytes(peak.dtype) == 2.0:
        return _halved(peak), None
    if not peak.microscaled_flop_per_s:
        return peak, None
    weights, scale = getattr(op, "weight_dtype", op.dtype), getattr(op, "scale", "none")
    plain = hardware.find_peak(op.dtype, "tensor")
    if plain is None or not may_be_microscaled(op.dtype, weights) or is_microscaled(op.dtype, weights, scale):
        return peak, None
    scaled = replace(plain, flop_per_s=peak.microscaled_flop_per_s, flop_per_clock_per_sm=None)
    if any(word in PLAIN for word in words):
        return plain, None
    if isinstance(op, Gemm) and scale == "none" and words[0] in OF_VENDOR:
        return scaled, None if library else plain
    if words[0] not in (*OF_VENDOR, *TUNED):
        return scaled, plain
    return plain, scaled


def _halved(peak: Peak) -> Peak:
    """Return the peak of instructions that take as many cycles for half the FLOP."""
    clocked, sustained = peak.flop_per_clock_per_sm, peak.sustained_flop_per_s
    return replace(
        peak,
        flop_per_s=0.5 * peak.flop_per_s,
        flop_per_clock_per_sm=0.5 * clocked if clocked else None,
        sustained_flop_per_s=0.5 * sustained if sustained else None,
    )
