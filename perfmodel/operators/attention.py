"""Scaled dot-product attention: prefill and decode, grouped-query, causal, windowed, flash or unfused."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from perfmodel.core.work import Number, Tensor, anywhere, clipped, minimum, plain, where
from perfmodel.errors import UsageError
from perfmodel.operators.base import Operator, choice, dtype_of, flag, size
from perfmodel.operators.checks import check_causal, check_groups
from perfmodel.operators.gemm import Gemm
from perfmodel.operators.softmax import Softmax


def chunk_pairs(seq_q: Number, seq_kv: Number, chunk: Number) -> Number:
    """Return the (query, key) pairs of a head whose queries attend to the keys of their own chunk, up to themselves.

    Query p has p mod c + 1 keys. Where queries start behind the first chunk, nobody knows at which place of one: they
    have (c + 1) / 2 keys in the mean.

    >>> chunk_pairs(6, 6, 4), chunk_pairs(1, 3, 4), chunk_pairs(1, 100, 4)
    (13.0, 3.0, 2.5)
    """
    start = seq_kv - seq_q
    exact = _pairs_before(seq_kv, chunk) - _pairs_before(start, chunk)
    return plain(where(start < chunk, exact, 0.5 * (chunk + 1.0) * seq_q))


def _pairs_before(position: Number, chunk: Number) -> Number:
    """Return the pairs of all queries before a position: those of whole chunks, and of the one that it is in."""
    inside = position % chunk
    return 0.5 * (position // chunk * chunk * (chunk + 1.0) + inside * (inside + 1.0))


@dataclass(frozen=True, kw_only=True, eq=False)
class Attention(Operator):
    """O = softmax(Q K^T / sqrt(head_dim)) V for each head of each sequence of a batch.

    FLOP = 2 batch heads pairs (head_dim + value_dim) for the two matrix products. The softmax does not count, as in
    ``torch.utils.flop_counter`` and the flash-attention papers (Dao et al. 2022, arXiv 2205.14135).
    ``pairs`` is the number of (query, key) pairs of a head:

    - full: seq_q seq_kv;
    - causal, flash: query i attends to the keys up to its own position, and the queries are the last positions of the
      sequence, so that pairs = seq_q seq_kv - seq_q (seq_q - 1) / 2: half for seq_q = seq_kv, all for decode
      (seq_q = 1);
    - causal with a window w: query i attends to at most the last w of those keys;
    - unfused: seq_q seq_kv even when causal, since the naive composition computes all scores and masks them.

    Traffic: flash reads Q, K, V once and writes O once. Unfused also writes the scores, reads them for the softmax,
    writes the probabilities and reads those for the second product.

    Backward, flash computes the scores again and forms four more products: 2 batch heads pairs (3 head_dim + 2
    value_dim) FLOP, with equal widths 2.5 times the forward pass. It reads q, k, v, o and do and writes dq, dk and dv.
    Unfused, the four products are twice the forward pass; with the gradient of the softmax they read the probabilities
    twice, and write and read the gradient of the probabilities, then that of the scores.

    Parameters
    ----------
    batch, heads : number of sequences and of query heads.
    kv_heads : key and value heads, by default ``heads``; divides ``heads`` (grouped-query attention).
    seq_q, seq_kv : queries and keys of a sequence; ``seq_kv`` defaults to ``seq_q``. Decode is ``seq_q=1``.
    head_dim : size of a head.
    value_dim : size of a head of V and O where it is another one (DeepSeek's prompts: 192 and 128); 0 is head_dim.
    causal, window : mask; 0 is no window, and a window needs ``causal``.
    kv_dtype : dtype of K and V, by default ``dtype``.
    algorithm : "flash" or "unfused".
    kv_write : whether the call also turns the new queries and keys (RoPE) and writes keys and values into a cache, as
        one call of a serving library's attention does. It adds to the predicted time. FLOP and bytes, and so the bound,
        are those of attention alone.
    backward : the gradients of Q, K and V.
    """

    #: libraries whose measured calls of attention include `kv_write`
    WRITING: ClassVar[tuple[str, ...]] = ("sglang", "trtllm", "vllm")

    op: ClassVar[str] = "attention"
    preferred_engine: ClassVar[str] = "tensor"

    batch: Number = size(1, doc="sequences")
    heads: Number = size(doc="query heads")
    kv_heads: Number = size(None, doc="key and value heads; default as heads")
    seq_q: Number = size(doc="queries of a sequence")
    seq_kv: Number = size(None, doc="keys of a sequence; default as seq_q")
    head_dim: Number = size(doc="size of a head")
    value_dim: Number = size(0, minimum=0, quiet=True, doc="size of a head of values; 0 means that of a head")
    causal: bool = flag(False, doc="each query attends to the keys up to its own position")
    window: Number = size(0, minimum=0, doc="most keys that a query attends to; 0 means all")
    kv_dtype: str = dtype_of(doc="dtype of keys and values; default as dtype")
    algorithm: str = choice("flash", ("flash", "unfused"), doc="one fused kernel, or a composition of three")
    kv_write: bool = flag(False, doc="the call also turns the new Q and K (RoPE) and writes K and V into the cache")
    backward: bool = flag(False, quiet=True, doc="the gradients of Q, K and V")

    def check(self) -> None:
        """Derive the defaults; check the groups of heads and the mask."""
        self.derive(kv_heads=self.heads, seq_kv=self.seq_q, kv_dtype=self.dtype)
        remedy = "Each key head belongs to a group of query heads; the groups have one size."
        check_groups(self.op, remedy, heads=self.heads, kv_heads=self.kv_heads)
        check_causal(self)
        if anywhere(self.window) and not self.causal:
            raise UsageError("a window needs causal=true.", place=self.op)
        if self.backward and self.kv_write:
            raise UsageError("kv_write is of serving, backward of training: no call is both.", place=self.op)

    @property
    def value_columns(self) -> Number:
        """Columns of a head of V and O."""
        if not anywhere(self.value_dim):
            return self.head_dim
        return plain(where(self.value_dim > 0, self.value_dim, self.head_dim))

    def pairs(self) -> Number:
        """Return the (query, key) pairs of one head."""
        return self.once("_pairs", self._pairs_of_a_head)

    def _pairs_of_a_head(self) -> Number:
        if not self.causal or self.algorithm == "unfused":
            return 1.0 * self.seq_q * self.seq_kv
        # The first query attends to `first` keys and each later one to one more, until the window or the sequence is
        # full: first a ramp of queries with fewer than `most` keys, then queries with `most` keys.
        most = self._keys_of_a_query()
        first = self.seq_kv - self.seq_q + 1.0
        ramp = clipped(most - first, 0.0, self.seq_q)
        return plain(ramp * first + 0.5 * ramp * (ramp - 1.0) + (self.seq_q - ramp) * most)

    def _keys_of_a_query(self) -> Number:
        """Return the most keys that a query attends to: the window, or without one the whole sequence."""
        if not anywhere(self.window):
            return self.seq_kv
        return plain(where(self.window > 0, minimum(self.window, self.seq_kv), self.seq_kv))

    def keys(self) -> Number:
        """Return the number of keys that any query attends to: less than seq_kv only with a window."""
        if self.algorithm == "unfused":
            return self.seq_kv
        return self.once("_keys", lambda: plain(minimum(self.seq_kv, self._keys_of_a_query() + self.seq_q - 1.0)))

    def flop(self) -> Number:
        """Return 2 batch heads pairs (d + e) [FLOP], d and e the columns of keys and of values.

        Backward 3 d + 2 e stands for d + e: the gradients of V, of the probabilities, of Q and of K, and the scores
        again; unfused 2 d + 2 e, since they are kept.
        """
        keyed, valued = (3.0 if self.algorithm == "flash" else 2.0, 2.0) if self.backward else (1.0, 1.0)
        each = 2.0 * (keyed * self.head_dim + valued * self.value_columns)
        return each * self.batch * self.heads * self.pairs()

    def tensors(self) -> tuple[Tensor, ...]:
        """Return Q, K [batch, heads or kv_heads, sequence, head_dim], V, O [..., value_columns]; if unfused, scores."""
        query = (self.batch, self.heads, self.seq_q, self.head_dim)
        key = (self.batch, self.kv_heads, self.keys(), self.head_dim)
        value, result = (*key[:3], self.value_columns), (*query[:3], self.value_columns)
        if self.backward:
            return self._gradients(query, key, value, result)
        tensors = (
            Tensor.input("q", query, self.dtype),
            Tensor.input("k", key, self.kv_dtype),
            Tensor.input("v", value, self.kv_dtype),
            Tensor.output("o", result, self.dtype),
        )
        if self.algorithm == "flash":
            return tensors
        scores = (self.batch, self.heads, self.seq_q, self.seq_kv)
        return (
            *tensors,
            Tensor.intermediate("scores", scores, self.dtype),
            Tensor.intermediate("probabilities", scores, self.dtype),
        )

    def _gradients(
        self, query: tuple[Number, ...], key: tuple[Number, ...], value: tuple[Number, ...], result: tuple[Number, ...]
    ) -> tuple[Tensor, ...]:
        """Return the tensors of the backward pass, given the shapes of Q, K, V and O."""
        results = (
            Tensor.output("dq", query, self.dtype),
            Tensor.output("dk", key, self.kv_dtype),
            Tensor.output("dv", value, self.kv_dtype),
        )
        if self.algorithm == "flash":
            return (
                Tensor.input("q", query, self.dtype),
                Tensor.input("k", key, self.kv_dtype),
                Tensor.input("v", value, self.kv_dtype),
                Tensor.input("o", result, self.dtype),
                Tensor.input("do", result, self.dtype),
                *results,
            )
        scores = (self.batch, self.heads, self.seq_q, self.seq_kv)
        return (
            Tensor.input("q", query, self.dtype),
            Tensor.input("k", key, self.kv_dtype),
            Tensor.input("v", value, self.kv_dtype),
            Tensor("do", result, self.dtype, reads=2.0),
            Tensor("probabilities", scores, self.dtype, reads=2.0),
            Tensor.intermediate("dprobabilities", scores, self.dtype),
            Tensor("dscores", scores, self.dtype, reads=2.0, writes=1.0),
            *results,
        )

    def composition(self) -> tuple[Operator, ...]:
        """Return the kernels of the unfused algorithm: scores, softmax, product with V; backward their gradients."""
        if self.algorithm == "flash":
            return ()
        heads, rows = self.batch * self.heads, self.batch * self.heads * self.seq_q
        if self.backward:
            return self._gradient_kernels(heads, rows)
        return (
            Gemm(batch=heads, m=self.seq_q, n=self.seq_kv, k=self.head_dim, dtype=self.dtype, name="scores"),
            Softmax(rows=rows, cols=self.seq_kv, dtype=self.dtype, name="probabilities"),
            Gemm(batch=heads, m=self.seq_q, n=self.value_columns, k=self.seq_kv, dtype=self.dtype, name="output"),
        )

    def _gradient_kernels(self, heads: Number, rows: Number) -> tuple[Operator, ...]:
        """Return the kernels of the unfused backward pass: two products, the softmax's gradient, two products."""

        def product(name: str, m: Number, n: Number, k: Number) -> Gemm:
            return Gemm(batch=heads, m=m, n=n, k=k, dtype=self.dtype, name=name)

        return (
            product("dv", self.seq_kv, self.value_columns, self.seq_q),
            product("dprobabilities", self.seq_q, self.seq_kv, self.value_columns),
            Softmax(rows=rows, cols=self.seq_kv, dtype=self.dtype, backward=True, name="dscores"),
            product("dq", self.seq_q, self.head_dim, self.seq_kv),
            product("dk", self.seq_kv, self.head_dim, self.seq_q),
        )
