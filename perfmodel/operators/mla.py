"""Multi-head latent attention (MLA) as servers compute it: all heads share one compressed key, also the value."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from perfmodel.core.work import Number, Tensor, anywhere, minimum, plain, where
from perfmodel.operators.attention import Attention
from perfmodel.operators.base import Operator, dtype_of, flag, size
from perfmodel.operators.checks import check_causal


@dataclass(frozen=True, kw_only=True, eq=False)
class Mla(Operator):
    """O = softmax(Q C^T) C[:, :latent] for each head, with one row of the cache C [seq_kv, latent + rope_dim] a token.

    Q comes scaled, by the width of the keys that the model was trained with; the scale takes no time of its own.

    DeepSeek-V2 (arXiv 2405.04434) keeps of a token a vector of ``latent`` numbers, of which keys and values of all
    heads would be made, and a rotary key of ``rope_dim``. Servers multiply the queries and the result by those matrices
    instead ("absorbed"): Q has latent + rope_dim columns a head, and O has ``latent``. Both products with the matrices
    are operators of their own, ``gemm``. Prompts are faster with keys and values made: `attention` with its
    ``value_dim``.

    FLOP = 2 batch heads pairs (2 latent + rope_dim): those of attention with one key head. Traffic reads Q and the
    rows of the cache once, which are keys and values at once, and writes O.

    Sparse attention (DeepSeek-V3.2, arXiv 2512.02556) leaves each query its ``chosen`` best keys of those that it may
    see. A query reads its own, so that the cache is read min(seq_kv, seq_q chosen) rows a sequence.

    Parameters
    ----------
    batch, heads : number of sequences and of query heads.
    seq_q, seq_kv : queries and keys of a sequence; ``seq_q`` is 1, or the tokens that a draft guessed.
    latent, rope_dim : columns of the compressed vector and of the rotary key.
    causal : the queries are the last positions, and each attends to the keys up to its own.
    chosen : keys that an indexer leaves a query; 0 is all. The indexer is not counted.
    kv_dtype : dtype of the cache, by default ``dtype``; of fp8 without its scales.

    Raises
    ------
    UsageError
        ``seq_kv`` below ``seq_q`` in causal attention.
    """

    op: ClassVar[str] = "mla"
    preferred_engine: ClassVar[str] = "tensor"

    batch: Number = size(1, doc="sequences")
    heads: Number = size(doc="query heads")
    seq_q: Number = size(1, doc="queries of a sequence")
    seq_kv: Number = size(doc="keys of a sequence")
    latent: Number = size(512, doc="columns of the compressed keys and values")
    rope_dim: Number = size(64, minimum=0, doc="columns of the rotary part of a key")
    causal: bool = flag(False, doc="each query attends to the keys up to its own position")
    chosen: Number = size(0, minimum=0, quiet=True, doc="keys that an indexer leaves a query; 0 means all")
    kv_dtype: str = dtype_of(doc="dtype of the cache; default as dtype")

    def check(self) -> None:
        """Derive the dtype of the cache; check the mask."""
        self.derive(kv_dtype=self.dtype)
        check_causal(self)

    @property
    def key_columns(self) -> Number:
        """Columns of a key: of the compressed vector, and of the rotary part."""
        return self.latent + self.rope_dim

    @property
    def rows(self) -> Number:
        """Rows of queries that share a key: those of all heads and tokens of a sequence."""
        return 1.0 * self.heads * self.seq_q

    @property
    def read_keys(self) -> Number:
        """Rows of the cache that the queries of a sequence read."""
        most = 1.0 * self.seq_kv
        if not anywhere(self.chosen):
            return most
        return plain(where(self.chosen > 0, minimum(most, 1.0 * self.seq_q * self.chosen), most))

    def attention(self) -> Attention:
        """Return the attention with one key head that it is, whose cache is read as keys and as values.

        An indexer leaves a query as many keys as a window would.
        """
        chosen = self.chosen if self.causal else 0
        return Attention(
            batch=self.batch, heads=self.heads, kv_heads=1, seq_q=self.seq_q, seq_kv=self.seq_kv, dtype=self.dtype,
            head_dim=self.key_columns, value_dim=self.latent, causal=self.causal, window=chosen, kv_dtype=self.kv_dtype,
        )  # fmt: skip

    def flop(self) -> Number:
        """Return 2 batch heads pairs (2 latent + rope_dim) [FLOP]."""
        seen = 1.0
        if not self.causal and anywhere(self.chosen):
            seen = where(self.chosen > 0, minimum(1.0, 1.0 * self.chosen / self.seq_kv), 1.0)
        return plain(seen * self.attention().flop())

    def tensors(self) -> tuple[Tensor, ...]:
        """Return Q [batch, heads, seq_q, latent + rope_dim], the cache [batch, keys, latent + rope_dim], and O."""
        queries = (self.batch, self.heads, self.seq_q)
        return (
            Tensor.input("q", (*queries, self.key_columns), self.dtype),
            Tensor.input("cache", (self.batch, self.read_keys, self.key_columns), self.kv_dtype),
            Tensor.output("o", (*queries, self.latent), self.dtype),
        )
