"""Scaled dot-product attention: prefill and decode, grouped-query, causal, windowed, flash or unfused."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from perfmodel.core.work import Number, Tensor, plain
from perfmodel.errors import UsageError
from perfmodel.operators.base import Operator, choice, dtype_of, flag, size
from perfmodel.operators.gemm import Gemm
from perfmodel.operators.softmax import Softmax


@dataclass(frozen=True, kw_only=True, eq=False)
class Attention(Operator):
    """O = softmax(Q K^T / sqrt(head_dim)) V for each head of each sequence of a batch.

    FLOP = 4 batch heads pairs head_dim, the two matrix products; the softmax is left out, as in
    ``torch.utils.flop_counter`` and the flash-attention papers (Dao et al. 2022, arXiv 2205.14135).
    ``pairs`` is the number of (query, key) pairs a head works on:

    - full: seq_q seq_kv;
    - causal, flash: query i sees the keys up to its own place, and the queries are the last ones, so
      pairs = seq_q seq_kv - seq_q (seq_q - 1) / 2: half for seq_q = seq_kv, everything for decode (seq_q = 1);
    - causal with a window w: query i sees at most the last w of those keys;
    - unfused: seq_q seq_kv even when causal, since the naive composition computes all scores and masks them.

    Traffic: flash reads Q, K, V once and writes O once; unfused also writes the scores, reads them for the
    softmax, writes the probabilities and reads those for the second product.

    Parameters
    ----------
    batch, heads : sequences and query heads.
    kv_heads : key and value heads, by default ``heads``; divides ``heads`` (grouped-query attention).
    seq_q, seq_kv : queries and keys; ``seq_kv`` defaults to ``seq_q``. Decode is ``seq_q=1``.
    head_dim : size of a head.
    causal, window : mask; a window of 0 is none, and a window needs ``causal``.
    kv_dtype : dtype of K and V, by default ``dtype``.
    algorithm : "flash" or "unfused".
    """

    op: ClassVar[str] = "attention"
    preferred_engine: ClassVar[str] = "tensor"

    batch: Number = size(1, doc="sequences")
    heads: Number = size(doc="query heads")
    kv_heads: Number = size(None, doc="key and value heads; default as heads")
    seq_q: Number = size(doc="queries of a sequence")
    seq_kv: Number = size(None, doc="keys of a sequence; default as seq_q")
    head_dim: Number = size(doc="size of a head")
    causal: bool = flag(False, doc="each query sees the keys up to its own place")
    window: Number = size(0, minimum=0, doc="keys that a query sees at most; 0 means all")
    kv_dtype: str = dtype_of(doc="dtype of keys and values; default as dtype")
    algorithm: str = choice("flash", ("flash", "unfused"), doc="fused kernel, or composition of three")

    def check(self) -> None:
        """Fill in the defaults; check that the heads group, and that masks make sense."""
        self.derive(kv_heads=self.heads, seq_kv=self.seq_q, kv_dtype=self.dtype)
        if np.any(np.mod(self.heads, self.kv_heads)):
            raise UsageError(
                f"heads={self.heads} is not a multiple of kv_heads={self.kv_heads}.",
                place=self.op,
                remedy="Each key head serves a whole group of query heads.",
            )
        if self.causal and np.any(np.less(self.seq_kv, self.seq_q)):
            raise UsageError(
                f"causal attention with seq_kv={self.seq_kv} below seq_q={self.seq_q}.",
                place=self.op,
                remedy="The queries are the last of the sequence, so seq_kv is at least seq_q.",
            )
        if np.any(self.window) and not self.causal:
            raise UsageError("a window needs causal=true.", place=self.op)

    def pairs(self) -> Number:
        """Return the (query, key) pairs that one head works on."""
        if not self.causal or self.algorithm == "unfused":
            return 1.0 * self.seq_q * self.seq_kv
        # The first query sees `first` keys and each later one a key more, until the window, or the sequence, is
        # full: a ramp of queries that see fewer than `most` keys, then queries that see `most`.
        most = self._keys_of_a_query()
        first = self.seq_kv - self.seq_q + 1.0
        ramp = np.clip(most - first, 0.0, self.seq_q)
        return plain(ramp * first + 0.5 * ramp * (ramp - 1.0) + (self.seq_q - ramp) * most)

    def _keys_of_a_query(self) -> Number:
        """Return the most keys that a query sees: the window, or the whole sequence where there is none."""
        if not np.any(self.window):
            return self.seq_kv
        return plain(np.where(np.asarray(self.window) > 0, np.minimum(self.window, self.seq_kv), self.seq_kv))

    def keys(self) -> Number:
        """Return the keys of a sequence that some query sees: fewer than seq_kv only with a window."""
        if self.algorithm == "unfused":
            return self.seq_kv
        return plain(np.minimum(self.seq_kv, self._keys_of_a_query() + self.seq_q - 1.0))

    def flop(self) -> Number:
        """Return 4 batch heads pairs head_dim [FLOP]."""
        return 4.0 * self.batch * self.heads * self.pairs() * self.head_dim

    def tensors(self) -> tuple[Tensor, ...]:
        """Return Q, K, V and O [batch, heads or kv_heads, sequence, head_dim]; unfused, scores and probabilities."""
        query = (self.batch, self.heads, self.seq_q, self.head_dim)
        key = (self.batch, self.kv_heads, self.keys(), self.head_dim)
        made = (
            Tensor.input("q", query, self.dtype),
            Tensor.input("k", key, self.kv_dtype),
            Tensor.input("v", key, self.kv_dtype),
            Tensor.output("o", query, self.dtype),
        )
        if self.algorithm == "flash":
            return made
        scores = (self.batch, self.heads, self.seq_q, self.seq_kv)
        return (
            *made,
            Tensor.intermediate("scores", scores, self.dtype),
            Tensor.intermediate("probabilities", scores, self.dtype),
        )

    def composition(self) -> tuple[Operator, ...]:
        """Return the three kernels of the unfused algorithm: the scores, their softmax, and the product with V."""
        if self.algorithm == "flash":
            return ()
        each, rows = self.batch * self.heads, self.batch * self.heads * self.seq_q
        return (
            Gemm(batch=each, m=self.seq_q, n=self.seq_kv, k=self.head_dim, dtype=self.dtype, name="scores"),
            Softmax(rows=rows, cols=self.seq_kv, dtype=self.dtype, name="probabilities"),
            Gemm(batch=each, m=self.seq_q, n=self.head_dim, k=self.seq_kv, dtype=self.dtype, name="output"),
        )
