"""The last linear layer and its cross entropy, chunk by chunk, so that the logits never exist all at once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from perfmodel.core.dtypes import dtype_bytes
from perfmodel.core.work import Number, Tensor, anywhere, ceil, floor, maximum, minimum, plain, where
from perfmodel.operators.base import Operator, flag, size
from perfmodel.operators.cross_entropy import CrossEntropy
from perfmodel.operators.elementwise import Elementwise
from perfmodel.operators.gemm import Gemm


@dataclass(frozen=True, kw_only=True, eq=False)
class LinearCrossEntropy(Operator):
    """loss = cross_entropy(x W^T, target) over chunks of the rows, as Liger-Kernel's fused linear cross entropy.

    The gradients of x and W are formed in the forward pass, chunk by chunk, so that there is no backward pass left.
    FLOP = 2 R H V for the logits alone, 6 R H V with the gradients; the softmax adds 4 R V + 2 R. A chunk is so long
    that its logits take about as much memory as x: 2^ceil(log2(R / ceil(V / H))). For each chunk, W is read, and the
    gradient of W is read and written: with R 16384, H 4096, V 128256 in bf16, 32 chunks of 512 rows move 67.2 GB of dW.
    The logits of a chunk are written, turned into their gradient in place, and read by two products. It buys memory,
    chunk V s bytes instead of R V (s + 4), not time.

    Parameters
    ----------
    rows, hidden, vocab : tokens, columns of x, and classes.
    chunk : rows of a chunk.
    gradients : the forward pass also forms the gradients.
    """

    op: ClassVar[str] = "linear_cross_entropy"
    preferred_engine: ClassVar[str] = "tensor"

    rows: Number = size(doc="tokens")
    hidden: Number = size(doc="columns of x and W")
    vocab: Number = size(doc="rows of W: classes")
    chunk: Number = size(None, doc="rows of a chunk; default as Liger-Kernel chooses")
    gradients: bool = flag(True, doc="the forward pass also forms the gradients of x and W")

    def check(self) -> None:
        """Derive the rows of a chunk, at most all."""
        parts = np.ceil(np.asarray(self.vocab / self.hidden))
        power = 2.0 ** np.ceil(np.log2(np.maximum(np.asarray(self.rows) / parts, 1.0)))
        self.derive(chunk=plain(np.minimum(power, self.rows)))

    @property
    def chunks(self) -> Number:
        """Number of chunks."""
        return plain(np.ceil(np.asarray(self.rows / self.chunk)))

    @property
    def peak_bytes(self) -> Number:
        """Memory of the logits that exist at once [B]."""
        return minimum(self.chunk, self.rows) * self.vocab * dtype_bytes(self.dtype)

    def flop(self) -> Number:
        """Return 2 or 6 rows hidden vocab, and 4 rows vocab + 2 rows of the softmax [FLOP]."""
        products = (6.0 if self.gradients else 2.0) * self.rows * self.hidden * self.vocab
        return products + 4.0 * self.rows * self.vocab + 2.0 * self.rows

    def tensors(self) -> tuple[Tensor, ...]:
        """Return x, W, target and loss; the logits; and with gradients dx, and dW once for each chunk."""
        x, weight, logits = (self.rows, self.hidden), (self.vocab, self.hidden), (self.rows, self.vocab)
        passes = 3.0 if self.gradients else 1.0
        tensors = (
            Tensor("x", x, self.dtype, reads=2.0 if self.gradients else 1.0),
            Tensor("weight", weight, self.dtype, reads=(2.0 if self.gradients else 1.0) * self.chunks),
            Tensor.input("target", (self.rows,), "int64"),
            Tensor.output("loss", (self.rows,), "fp32"),
            Tensor("logits", logits, self.dtype, reads=passes, writes=2.0 if self.gradients else 1.0),
        )
        if not self.gradients:
            return tensors
        return (
            *tensors,
            Tensor.output("dx", x, self.dtype),
            Tensor("dweight", weight, self.dtype, reads=self.chunks, writes=self.chunks),
        )

    def index_limit(self, name: str) -> Number:
        """Return the classes that the targets are among."""
        return self.vocab

    def chunk_rows(self) -> tuple[tuple[Number, Number], ...]:
        """Return the rows of the chunks and how many there are: of the whole ones, and of the last with what is left.

        >>> LinearCrossEntropy(rows=1025, hidden=4096, vocab=8192).chunk_rows()
        ((1024.0, 1.0), (1.0, 1.0))
        """
        rows = minimum(self.chunk, self.rows)
        whole = floor(self.rows / rows)
        left = self.rows - whole * rows
        if not anywhere(left):
            return ((rows, whole),)
        return (rows, whole), (maximum(left, 1.0), where(left > 0.0, 1.0, 0.0))

    def of_chunk(self, rows: Number, apart: bool = False) -> tuple[Operator, ...]:
        """Return the kernels of a chunk: the logits, their cross entropy, and the two products of the gradients.

        The product of dW reads what it adds to: half a copy, of whole elements. Where it is added ``apart``, PyTorch
        widens the product to fp32 and adds that to dW, and both passes convert each element.
        """
        algorithm = "fused" if self.gradients else "loss"
        kernels: tuple[Operator, ...] = (
            self._product("logits", rows, self.vocab, self.hidden),
            CrossEntropy(rows=rows, vocab=self.vocab, algorithm=algorithm, dtype=self.dtype, name="loss"),
        )
        if self.gradients:
            dx = self._product("dx", rows, self.hidden, self.vocab)
            dweight = self._product("dweight", self.vocab, self.hidden, rows)
            kernels = (*kernels, dx, dweight, *self._added(apart))
        return kernels

    def composition(self, apart: bool = False) -> tuple[Operator, ...]:
        """Return the kernels of all chunks; with ``apart``, dW is added in passes of their own."""
        return tuple(
            kernel.repeated(count) for rows, count in self.chunk_rows() for kernel in self.of_chunk(rows, apart)
        )

    def _added(self, apart: bool) -> tuple[Elementwise, ...]:
        """Return what adds a chunk's product to dW beside writing it."""
        numel = 1.0 * self.vocab * self.hidden
        if not apart or dtype_bytes(self.dtype) != 2.0:
            return (Elementwise(numel=ceil(numel / 2.0), kind="copy", dtype=self.dtype, name="added"),)
        widened = Elementwise(numel=numel, kind="cast", dtype=self.dtype, out_dtype="fp32", name="widened")
        return widened, widened.changed(name="added")

    def _product(self, name: str, m: Number, n: Number, k: Number) -> Gemm:
        return Gemm(m=m, n=n, k=k, dtype=self.dtype, name=name)

    def buffers(self) -> tuple[Tensor, ...]:
        """Return x, W, target and loss."""
        return self.tensors()[:4]
