"""Sampling of one token from each row of logits."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from perfmodel.core.work import Number, Tensor, anywhere
from perfmodel.errors import UsageError
from perfmodel.operators.base import Operator, choice, size
from perfmodel.operators.checks import first_point
from perfmodel.operators.sort import Sort
from perfmodel.operators.topk import INDEX_DTYPE, Topk

#: algorithm -> (FLOP an element, kernels, reads and writes of a row between the first read and the end)
_RACES = {"multinomial": (8.0, 5.0, 3.0), "gumbel": (4.0, 4.0, 3.0), "gumbel_fused": (4.0, 1.0, 0.0)}
#: reads of the logits by a search for the pivot of top-p: its maximum and sum, and two more to narrow it down
PIVOT_READS = 4.0
ALGORITHMS = (*_RACES, "top_k", "top_p", "top_p_pivot")


@dataclass(frozen=True, kw_only=True, eq=False)
class Sampling(Operator):
    """One token for each row of ``vocab`` logits, drawn from softmax(logits), or from its k or its share p.

    - multinomial: softmax, then the race argmax(p / e) with exponential random numbers e, which is what
      ``torch.multinomial`` of one sample runs. Passes over a row: softmax r + w, e w, division 2 r + w, argmax r: 7.
    - gumbel: argmax(logits - log e), the same distribution (Gumbel 1954; Maddison et al. 2014, arXiv 1411.0030).
      As torch operators: e w, log r + w, difference 2 r + w, argmax r: 7 passes as well.
    - gumbel_fused: one kernel that draws e and keeps the maximum: the logits are read once.
    - top_k: `Topk` by radix select, then softmax and race among the k.
    - top_p: a sort of the row with its indices, a scan of its probabilities (2 passes), then the race.
    - top_p_pivot: reads the logits 4 times to find the smallest logit that belongs to the share p, and draws among
      those above it; nothing is sorted (flashinfer's rejection sampling needs as many reads; assumed).

    FLOP = softmax 5, exponential 1, division 1, comparison 1 (multinomial); log twice, difference, comparison (gumbel).

    Parameters
    ----------
    rows, vocab : rows of logits, and the tokens of each.
    k : tokens of top_k; 50 by default.
    algorithm : one of the above.
    """

    op: ClassVar[str] = "sampling"

    rows: Number = size(doc="rows of logits")
    vocab: Number = size(doc="logits of a row")
    k: Number = size(50, doc="tokens among which top_k draws")
    algorithm: str = choice("multinomial", ALGORITHMS, always_shown=True, doc="how a token is drawn")

    def check(self) -> None:
        """Refuse a top k of more tokens than there are."""
        if self.algorithm == "top_k" and anywhere(above := self.k > self.vocab):
            k, vocab = first_point(above, self.k, self.vocab)
            raise UsageError(f"k={k} is above vocab={vocab}.", place=self.op, remedy="Keep at most vocab.")

    def selection(self) -> Topk | Sort | None:
        """Return the selection that comes before the draw, None where there is none."""
        if self.algorithm == "top_k":
            return Topk(rows=self.rows, cols=self.vocab, k=self.k, dtype=self.dtype)
        if self.algorithm == "top_p":
            return Sort(rows=self.rows, cols=self.vocab, dtype=self.dtype, value_dtype=INDEX_DTYPE)
        return None

    def kept(self) -> Number:
        """Return the logits of a row that the selection leaves."""
        return self.k if self.algorithm == "top_k" else self.vocab

    def kernels(self) -> Number:
        """Return the kernels of one call."""
        if selection := self.selection():  # softmax and race; with a scan of the sorted probabilities
            return selection.kernels() + _RACES["multinomial"][1] + (1.0 if self.algorithm == "top_p" else 0.0)
        return 1.0 if self.algorithm == "top_p_pivot" else _RACES[self.algorithm][1]

    def flop(self) -> Number:
        """Return the arithmetic of softmax, random numbers and comparisons [FLOP]."""
        logits = 1.0 * self.rows * self.vocab
        if selection := self.selection():
            drawn = _RACES["multinomial"][0] * self.rows * self.kept()
            return selection.flop() + drawn + (logits if self.algorithm == "top_p" else 0.0)
        return logits * (2.0 * PIVOT_READS if self.algorithm == "top_p_pivot" else _RACES[self.algorithm][0])

    def tensors(self) -> tuple[Tensor, ...]:
        """Return logits [rows, vocab], the drawn tokens [rows], and what passes between the kernels."""
        row, token = (self.rows, self.vocab), Tensor.output("token", (self.rows,), "int64")
        if selection := self.selection():
            logits, *moved = selection.tensors()
            kept = (self.rows, self.kept())
            # probabilities, random numbers and their quotients among those kept; and the scan's sums
            between = 4.0 if self.algorithm == "top_p" else 3.0
            renamed = (tensor.inner(f"selected: {tensor.name}") for tensor in moved)
            drawn = Tensor("race", kept, self.dtype, between, between, 2.0 * between)
            first = Tensor("logits", row, self.dtype, reads=logits.reads, repeated=logits.repeated)
            return (first, token, *renamed, drawn)
        if self.algorithm == "top_p_pivot":
            return Tensor("logits", row, self.dtype, reads=PIVOT_READS, repeated=PIVOT_READS - 1.0), token
        between = _RACES[self.algorithm][2]
        passed = (Tensor("race", row, self.dtype, between, between, 2.0 * between),) if between else ()
        return (Tensor.input("logits", row, self.dtype), token, *passed)
