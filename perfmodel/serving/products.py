"""Matrix products of an engine: in 16 bits, by narrow weights, and of few rows, which matrix-vector kernels compute."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from perfmodel.core.hardware import Hardware
from perfmodel.operators.elementwise import Elementwise
from perfmodel.operators.gemm import Gemm
from perfmodel.serving.cost import Array, Deviation, kernel
from perfmodel.serving.engine import Engine
from perfmodel.serving.precision import Format
from perfmodel.serving.triton_blocks import triton_time

#: tokens at which half of the slow-down by sustained load has occurred
HOT_TOKENS = 256.0
#: graphs hold batches of 1, 2 and multiples of 4 or 8, up to some hundreds, and smaller ones are padded to the next
#: (``cudagraph_capture_sizes`` of vLLM, ``cuda_graph_bs`` of SGLang, ``enable_padding`` of TensorRT-LLM)
GRAPH_ROWS, MOST_GRAPH_ROWS = 4.0, 512.0
#: share of the vector units' rate in fp32 that a matrix-vector kernel reaches for each row beyond the first, whose
#: arithmetic hides behind the read: Llama-3-8B in Q4_0 on an RTX 3090 took 6.4, 7.2, 8.5 and 14.0 ms a step for 1, 2, 4
#: and 8 rows (ggml-org/llama.cpp pull request 15802)
VECTOR_SHARE = 0.5


@dataclass(frozen=True)
class Products:
    """Whose products: an engine's on a machine.

    Attributes
    ----------
    engine, hardware : the engine's profile, the machine.
    dtype : of activations, and of products that are not quantised.
    """

    engine: Engine
    hardware: Hardware
    dtype: str

    def loaded(self, rows: Array) -> Array:
        """Return the factor of sustained load on a product of so many rows; it has no effect on reading weights."""
        most = self.engine.hot_on(self.hardware.matrix_instruction)
        return np.asarray(1.0 + (most - 1.0) * rows / (rows + HOT_TOKENS))

    def time(
        self,
        m: Array,
        n: int,
        k: int,
        weights: Format | None,
        *,
        quantises: bool = True,
        batch: int = 1,
        experts: bool = False,
    ) -> tuple[Array, Deviation]:
        """Return the time of a product of m rows of k with a matrix of n columns [s], and its deviation.

        Parameters
        ----------
        weights : their format; None is 16 bits.
        quantises : whether a kernel of its own quantises the activations of formats for which the engine has one.
        batch : products beside each other.
        experts : whether it stands for those of experts.
        """
        if weights and weights.name in self.engine.widens.split(","):
            time, deviation = self._widened(m, n, k, weights)
        else:
            time, deviation = self._tiled(m, n, k, weights, quantises, batch)
        if weights and self.by_triton(weights, experts=experts):
            time = triton_time(time, np.maximum(1.0, np.round(m)), n, k, self.hardware, experts=experts)
        is_few = m <= self.engine.vectors
        if weights is None or not weights.weight_only or not np.any(is_few):
            return time, deviation
        few, of_few = self._streamed(m, n, k, weights, batch)
        parts = (np.where(is_few, *pair) for pair in zip(of_few, deviation, strict=True))
        return np.where(is_few, few, time), Deviation(*parts)

    def by_triton(self, weights: Format, *, experts: bool) -> bool:
        """Return whether Triton's kernels multiply a format, see `perfmodel.serving.triton_blocks`."""
        blocks = weights.scale.startswith("block")
        return blocks and self.engine.triton_blocks in (("experts", "all") if experts else ("all",))

    def vector_rate(self) -> float:
        """Return the rate at which matrix-vector kernels compute [FLOP/s]."""
        peak = self.hardware.find_peak("fp32", "vector")
        return VECTOR_SHARE * (peak.flop_per_s if peak else np.inf)

    def _tiled(
        self, m: Array, n: int, k: int, weights: Format | None, quantises: bool, batch: int
    ) -> tuple[Array, Deviation]:
        options = weights.options(k) if weights else {"dtype": self.dtype}
        formats = {weights.name, weights.compute, weights.weights} - {""} if weights else set()
        if quantises and formats & set(self.engine.quantises.split(",")):
            options.pop("quantized", None)
        integers = weights is not None and self._in_integers(weights)
        if integers:
            options = {"dtype": "int8", "quantized": True}
        op = Gemm(m=self._rows(m, options.get("scale", "")), n=n, k=k, batch=batch, **options)
        time, deviation = kernel(op, self.hardware, self.engine.library)
        return time * (self.engine.integers_slower if integers else 1.0), deviation

    def _in_integers(self, weights: Format) -> bool:
        """Return whether the engine multiplies a format with activations in 8-bit integers, which the machine can."""
        named = weights.name in self.engine.integers.split(",")
        return named and self.hardware.find_peak("int8", "tensor") is not None

    def _streamed(self, m: Array, n: int, k: int, weights: Format, batch: int) -> tuple[Array, Deviation]:
        """Return the time of a kernel that reads narrow weights once and multiplies them row by row [s].

        It reads as a product in 16 bits of as many bytes does, which has as few rows.
        """
        rows = np.maximum(1.0, np.round(m))
        width = max(1, round(k * weights.bytes / 2.0))
        time, deviation = kernel(
            Gemm(m=rows, n=n, k=width, batch=batch, dtype=self.dtype), self.hardware, self.engine.library
        )
        return time + rows * 2.0 * batch * n * k / self.vector_rate(), deviation

    def _rows(self, m: Array, scale: str) -> Array:
        """Return the rows that a product computes: with scales of blocks, as many as the next CUDA graph holds.

        Kernels of such products copy what is no multiple of four rows, which graphs never give them.
        """
        rows = np.maximum(1.0, np.round(m))
        if not (self.engine.graph and scale.startswith("block")):
            return rows
        padded = GRAPH_ROWS * np.ceil(rows / GRAPH_ROWS)
        return np.where((rows > 2.0) & (rows <= MOST_GRAPH_ROWS), padded, rows)

    def _widened(self, m: Array, n: int, k: int, weights: Format) -> tuple[Array, Deviation]:
        """Return the time of a product behind a kernel that reads narrow weights and writes them in 16 bits [s]."""
        time, deviation = self._tiled(m, n, k, None, False, 1)
        moved = (weights.bytes + 2.0) / 4.0  # over what a copy moves
        op = Elementwise(kind="copy", numel=np.round(np.full(1, moved * n * k)), num_inputs=1, dtype=self.dtype)
        return time + kernel(op, self.hardware, self.engine.library)[0], deviation
