"""Cross entropy of logits against the indices of the right classes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from perfmodel.core.work import Number, Tensor
from perfmodel.operators.base import Operator, choice, flag, size
from perfmodel.operators.elementwise import Elementwise
from perfmodel.operators.index_select import IndexSelect
from perfmodel.operators.softmax import Softmax


@dataclass(frozen=True, kw_only=True, eq=False)
class CrossEntropy(Operator):
    """loss[r] = log(sum exp(x[r, :])) - x[r, target[r]], the negative logarithm of the softmax at the target.

    FLOP = 4 R V + 2 R: maximum, subtract, exp, add for each logit, the logarithm and the difference for each row.
    Bytes, with s of a logit, 8 of a target and 4 of a loss:

    - "loss", one kernel that only reads the logits: R V s + 12 R. Its gradient reads them again and writes dx:
      2 R V s + 12 R; softmax anew, 4 R V FLOP.
    - "fused", as Liger-Kernel: the same kernel writes the gradient in place of the logits: 2 R V s + 12 R. Backward
      scales it by the gradient of the loss: 2 R V s + 4 R, R V FLOP.
    - "plain", as PyTorch: log_softmax reads and writes R V, a second kernel picks the targets: 2 R V s + R (s + 12).
      Backward fills a gradient of log_softmax with zeros and the targets, then reads it and the result of log_softmax
      and writes dx: 4 R V s + 12 R; 3 R V FLOP.

    Parameters
    ----------
    rows, vocab : tokens, and logits of each.
    algorithm : "plain", "fused" or "loss".
    backward : the gradient.
    """

    op: ClassVar[str] = "cross_entropy"

    rows: Number = size(doc="tokens")
    vocab: Number = size(doc="logits of a token")
    algorithm: str = choice("plain", ("plain", "fused", "loss"), doc="PyTorch's kernels, the gradient at once, or loss")
    backward: bool = flag(False, quiet=True, doc="the gradient")

    def flop(self) -> Number:
        """Return 4 rows vocab + 2 rows; backward 3 (plain), 1 (fused) or 4 (loss) rows vocab [FLOP]."""
        logits = 1.0 * self.rows * self.vocab
        if self.backward:
            return {"plain": 3.0, "fused": 1.0, "loss": 4.0}[self.algorithm] * logits
        return 4.0 * logits + 2.0 * self.rows

    def tensors(self) -> tuple[Tensor, ...]:
        """Return logits, target and loss, and what the algorithm keeps; backward the gradients."""
        shape = (self.rows, self.vocab)
        target = Tensor.input("target", (self.rows,), "int64")
        if self.backward:
            scale = Tensor.input("dloss", (self.rows,), "fp32")
            result = Tensor.output("dlogits", shape, self.dtype)
            if self.algorithm == "fused":
                return (Tensor.input("gradient", shape, self.dtype), scale, result)
            if self.algorithm == "loss":
                return (Tensor.input("logits", shape, self.dtype), target, scale, result)
            zeros = Tensor.intermediate("dlog_probabilities", shape, self.dtype)
            return (Tensor.input("log_probabilities", shape, self.dtype), target, scale, zeros, result)
        tensors = (
            Tensor.input("logits", shape, self.dtype),
            target,
            Tensor.output("loss", (self.rows,), "fp32"),
        )
        if self.algorithm == "fused":
            return (*tensors, Tensor.output("gradient", shape, self.dtype))
        if self.algorithm == "loss":
            return tensors
        # what stays for the gradient; the second kernel reads one element a row
        return (
            *tensors,
            Tensor.output("log_probabilities", shape, self.dtype),
            Tensor("picked", (self.rows,), self.dtype, reads=1.0, writes=0.0),
        )

    def index_limit(self, name: str) -> Number:
        """Return the classes that the targets are among."""
        return self.vocab

    def composition(self) -> tuple[Operator, ...]:
        """Return PyTorch's kernels: log_softmax and the pick, backward the zeros and the gradient of log_softmax.

        A thread of the pick reads the target of its row, then the logarithm at that place; backward it only writes
        there (nll_loss_forward_no_reduce_cuda_kernel, aten/src/ATen/native/cuda/Loss.cu).
        """
        if self.algorithm != "plain":
            return ()
        softmax = Softmax(
            rows=self.rows, cols=self.vocab, dtype=self.dtype, backward=self.backward, log=True, name="log_softmax"
        )
        if not self.backward:
            pick = IndexSelect(rows=self.rows, cols=1, table=self.rows * self.vocab, dtype=self.dtype, name="pick")
            return (softmax, pick)
        zeros = Elementwise(numel=self.rows * self.vocab, kind="fill", dtype=self.dtype, name="zeros")
        placed = Elementwise(numel=self.rows, kind="neg", dtype=self.dtype, out_dtype="fp32", name="pick")
        return (zeros, placed, softmax)

    def buffers(self) -> tuple[Tensor, ...]:
        """Return logits, target and loss, forward; what an algorithm keeps beside them is its own."""
        return self.tensors() if self.backward else self.tensors()[:3]
