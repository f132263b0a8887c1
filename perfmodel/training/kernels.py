"""The time of the kernels of a training step on one machine: matrix products, memory-bound kernels, attention.

Predictions of single operators are kept on the machine, so that set-ups that share a shape share its prediction.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from perfmodel.core.dtypes import dtype_bytes
from perfmodel.core.hardware import Hardware, cached_per_machine
from perfmodel.core.vocabulary import Load
from perfmodel.errors import nearest
from perfmodel.operators.attention import Attention, chunk_pairs
from perfmodel.operators.elementwise import Elementwise
from perfmodel.operators.gemm import Gemm
from perfmodel.operators.layer_norm import LayerNorm
from perfmodel.operators.softmax import Softmax
from perfmodel.prediction.latency.nearest_tables import measured_libraries
from perfmodel.prediction.predict import predict
from perfmodel.training.choices import EFFICIENT
from perfmodel.training.flash import flash_rate

#: sizes of the copies between which the time of memory-bound kernels is interpolated [B of one tensor in 16 bits]
_COPY_BYTES: NDArray[np.float64] = np.exp2(np.arange(14.0, 35.0))
#: instructions of the tensor engine that read 8-bit matrices along the summed axis only: cuBLAS documentation,
#: "8-bit Floating Point Data Types Usage": the format is TN on compute capability 8.9, 9.0 and 12
_ALONG_SUM = ("mma.sync", "wgmma")
#: names of dtypes in plans -> dtype whose peak and kernels they use
ARITHMETIC = {"mxfp8": "fp8", "nvfp4": "fp4"}
#: time of a product whose blocks have scales over that of one with a scale for the whole tensor: 7.161 over 6.812 ms of
#: the twelve products of a layer with inputs that were cast before, MXFP8 and FP8 CurrentScaling on a B300
#: (NVIDIA/TransformerEngine @ 8f2e6357, docs/examples/gemm_profiling, "Autocast vs Pre-quantized"). The rows of fp4
#: products have their blocks' scales
BLOCK_SCALES = {"mxfp8": 1.05}


class Product(NamedTuple):
    """One matrix product, or ``batch`` equal ones: C[m, n] = A[m, k] B[k, n]; with the kernels of some libraries."""

    m: float
    n: float
    k: float
    dtype: str
    out_dtype: str
    batch: float = 1
    libraries: tuple[str, ...] = ()

    @property
    def flop(self) -> float:
        """Multiplications and additions [FLOP]."""
        return 2.0 * self.batch * self.m * self.n * self.k


@cached_per_machine
def _products_known(hardware: Hardware) -> dict[Product, float]:
    """Return the products that were predicted on a machine so far, with their times [s]."""
    return {}


def product_times(hardware: Hardware, products: Iterable[Product]) -> dict[Product, float]:
    """Return the time of some products alone on the machine [s]; those that are new are predicted together.

    It is the mean of the libraries that a product names, or without names of all, as `predict` has it.
    """
    known = _products_known(hardware)
    kinds: dict[tuple[str, str, tuple[str, ...]], list[Product]] = {}
    for product in dict.fromkeys(products):
        if product not in known:
            kinds.setdefault((product.dtype, product.out_dtype, product.libraries), []).append(product)
    for (dtype, out_dtype, libraries), listed in kinds.items():
        m, n, k, batch = (
            np.array([getattr(product, name) for product in listed], dtype=np.float64)
            for name in ("m", "n", "k", "batch")
        )
        op = Gemm(m=m, n=n, k=k, batch=batch, dtype=dtype, out_dtype=out_dtype, quantized=dtype in ("fp8", "fp4"))
        named = (predict(op, hardware, library=name, load=Load.SUSTAINED) for name in libraries or ("",))
        times = np.mean([np.broadcast_to(found.predicted_time_s, m.shape) for found in named], axis=0)
        known |= dict(zip(listed, times.tolist(), strict=True))
    return known


@cached_per_machine
def unmeasured(hardware: Hardware, family: str, libraries: tuple[str, ...]) -> tuple[str, ...]:
    """Return a note for each library of which no table of a family for a machine has rows."""
    known = measured_libraries(family, hardware)
    return tuple(
        f"No table of {family} has rows of library {name!r}, which the framework's file names (measured: "
        f"{', '.join(known) or 'none'}): it counts as an unknown one. {nearest(name, known)}".rstrip()
        for name in libraries
        if name not in known
    )


@cached_per_machine
def _copy_times(hardware: Hardware) -> NDArray[np.float64]:
    """Return the time of copying a tensor of each of `_COPY_BYTES` [s]."""
    copies = predict(Elementwise(numel=_COPY_BYTES / 2.0, kind="copy", dtype="bf16"), hardware)
    return np.asarray(copies.predicted_time_s, dtype=np.float64)


def stream_time(hardware: Hardware, moved_bytes: float) -> float:
    """Return the time of a kernel that moves some bytes, read and written together, as fast as a copy [s]."""
    if moved_bytes <= 0:
        return 0.0
    times = _copy_times(hardware)
    half = moved_bytes / 2.0
    if half >= _COPY_BYTES[-1]:
        return float(times[-1] * half / _COPY_BYTES[-1])
    return float(np.interp(half, _COPY_BYTES, times))


@cached_per_machine
def row_slowness(hardware: Hardware, kind: str, rows: int, cols: int, dtype: str, library: str = "triton") -> float:
    """Return how much longer a kernel that reduces rows takes than a copy of the same bytes; at least 1.

    It is the ratio of the predictions of `LayerNorm`, or `Softmax`, in a library and of a copy. Fused kernels of
    training frameworks read a row once, as Triton's do. RMSNorm counts as LayerNorm: the rows that its own family was
    fitted on are those of one serving library's kernel.
    """
    rows, cols = max(1, rows), max(1, cols)  # tensor parallel ranks may have less than a token each
    op = (Softmax if kind == "softmax" else LayerNorm)(rows=rows, cols=cols, dtype=dtype)
    moved = 2.0 * dtype_bytes(dtype) * rows * cols
    return max(1.0, float(predict(op, hardware, library=library).predicted_time_s) / stream_time(hardware, moved))


class Core(NamedTuple):
    """The core of attention of one layer and micro batch on one GPU: what lies between the projections.

    A ``window`` that is ``chunked`` is a piece of the sequence, to whose keys alone its queries attend.
    """

    batch: float
    heads: float
    kv_heads: float
    seq: float
    head_dim: float
    value_dim: float
    causal: bool
    window: int
    kernel: str
    dtype: str
    keys: float = 0.0
    libraries: tuple[str, ...] = ()
    chunked: bool = False

    @property
    def seq_kv(self) -> float:
        """Keys that a query attends to: the sequence, or that of an encoder."""
        return self.keys or self.seq


@dataclass(frozen=True)
class CoreTime:
    """Time and FLOP of the core of attention.

    Attributes
    ----------
    forward_s, backward_s : the kernels that multiply [s].
    softmax_bytes, softmax_backward_bytes : what unfused attention moves for its softmax and dropout, as bytes of a copy
        that takes as long [B].
    flop : of the forward products that are computed; backward has 2.5 times as many with a flash kernel, 2 without.
    charted : whether the times are those of a chart, see `perfmodel.training.flash`.
    """

    forward_s: float
    backward_s: float
    softmax_bytes: float
    softmax_backward_bytes: float
    flop: float
    charted: bool = False

    def scaled(self, share: float) -> CoreTime:
        """Return a core with some share of the work."""
        return CoreTime(
            share * self.forward_s, share * self.backward_s, share * self.softmax_bytes,
            share * self.softmax_backward_bytes, share * self.flop, self.charted,
        )  # fmt: skip


#: the core of a layer that has none
NO_CORE = CoreTime(0.0, 0.0, 0.0, 0.0, 0.0)

#: FLOP of backward over forward: a flash kernel computes the scores again
FLASH_BACKWARD = 2.5
#: rate of the backward kernel of cuDNN and FA3 over the forward one: read off the figures of the FlashAttention-2 and
#: -3 papers (arXiv 2307.08691, 2407.08608); 2.5 / 0.85 to 3.5 times the forward's time change published steps by 0.15 %
BACKWARD_RATE = 0.85


@cached_per_machine
def core_time(
    hardware: Hardware, core: Core, dropout: bool, softmax_passes: int, row_library: str = "triton"
) -> CoreTime:
    """Return the time of the core of attention.

    A flash kernel computes the scores below the diagonal; the unfused composition all of them. Its energy is that of
    its own rows: what minutes of load cost was chosen with products, and with it steps of 10^6 tokens would take 1.6
    times as long as NeMo's on H100, which fit nothing.
    """
    if core.kernel in ("unfused", "eager-unfused"):
        return _unfused(hardware, core, dropout, softmax_passes, row_library)
    efficient = core.kernel == EFFICIENT
    half = "bf16" if "bf16" in hardware.dtypes() else "fp16"
    op = Attention(
        batch=max(1, round(core.batch)), heads=max(1, round(core.heads)), kv_heads=max(1, round(core.kv_heads)),
        seq_q=round(core.seq), seq_kv=round(core.seq_kv), head_dim=round(core.head_dim),
        value_dim=0 if core.value_dim == core.head_dim else round(core.value_dim), causal=core.causal,
        window=core.window, dtype="fp32" if efficient and core.dtype == "fp32" else half,
    )  # fmt: skip
    share = 1.0
    if core.chunked and core.window:
        share = float(chunk_pairs(core.seq, core.seq_kv, core.window)) / float(op.pairs())
    flop = float(op.flop()) * share
    seen = min(core.seq_kv, core.window or core.seq_kv)
    rate = flash_rate(hardware, core.kernel, seen, core.head_dim)
    if rate is not None:
        forward = flop / (FORWARD_OVER_BOTH * rate)
        return CoreTime(forward, flop * (3.5 - 1.0 / FORWARD_OVER_BOTH) / rate, 0.0, 0.0, flop, True)
    library = "fa3" if core.kernel == "fa3" else "torch/efficient" if efficient else ""
    forward = float(predict(op, hardware, library=library).predicted_time_s) * share
    return CoreTime(forward, forward * FLASH_BACKWARD / BACKWARD_RATE, 0.0, 0.0, flop)


#: rate of FlashAttention-2's forward kernel over that of both passes (335 beside 328 TFLOP/s on H100 for both, and the
#: pair's chart: flash3_fp16_fwd.png and flash2_h100_fwd_bwd_benchmark.png, Dao-AILab/flash-attention @ 0251105a)
FORWARD_OVER_BOTH = 1.1


def _unfused(hardware: Hardware, core: Core, dropout: bool, softmax_passes: int, row_library: str) -> CoreTime:
    """Two batched products around the scores, whose softmax and dropout read and write all of them."""
    heads, seq, keys, width = math.ceil(core.batch * core.heads), core.seq, core.seq_kv, core.head_dim
    size: dict[str, Any] = {"dtype": core.dtype, "out_dtype": core.dtype, "batch": heads, "libraries": core.libraries}
    scores, values = Product(seq, keys, width, **size), Product(seq, width, keys, **size)
    backward = (values, scores, *[Product(keys, width, seq, **size)] * 2)
    times = product_times(hardware, (scores, values, *backward))
    element, numel = dtype_bytes(core.dtype), heads * seq * keys
    pass_bytes = 2.0 * element
    masked = (pass_bytes + 1.0) * dropout
    slow = row_slowness(hardware, "softmax", round(heads * seq), round(keys), core.dtype, row_library)
    return CoreTime(
        forward_s=times[scores] + times[values],
        backward_s=sum(times[product] for product in backward),
        softmax_bytes=numel * ((softmax_passes - 1 + slow) * pass_bytes + masked),
        softmax_backward_bytes=numel * (slow * 3.0 * element + (softmax_passes - 1) * pass_bytes + masked),
        flop=scores.flop + values.flop,
    )


def needs_transposed(hardware: Hardware) -> bool:
    """Return whether the gradients' products in fp8 read transposed copies, see `_ALONG_SUM`."""
    return hardware.matrix_instruction in _ALONG_SUM


def arithmetic(dtype: str) -> str:
    """Return the dtype of the products that a plan's dtype names: "fp8" for "mxfp8"."""
    return ARITHMETIC.get(dtype, dtype)
