"""Writing keys and values into a paged cache."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from perfmodel.core.dtypes import dtype_bytes
from perfmodel.core.work import Number, Tensor
from perfmodel.operators.base import Operator, dtype_of, size


@dataclass(frozen=True, kw_only=True, eq=False)
class KvWrite(Operator):
    """cache[slot[t]] = k[t], v[t] for each token, converted to the dtype of the cache.

    FLOP = 0, or 2 an element for a cache of 8 bits or less (the product with the scale, the clamp). Traffic reads k
    and v, writes both into the cache and reads a 64-bit slot a token: 2 T H_kv D (s + c) + 8 T bytes.

    Parameters
    ----------
    tokens : tokens.
    kv_heads, head_dim : heads of keys and of values, and their size.
    cache_dtype : dtype of the cache, by default ``dtype``.
    """

    op: ClassVar[str] = "kv_write"

    tokens: Number = size(doc="tokens")
    kv_heads: Number = size(doc="heads of the keys, and of the values")
    head_dim: Number = size(doc="size of a head")
    cache_dtype: str = dtype_of(doc="dtype of the cache; default as dtype")

    def check(self) -> None:
        """Derive the dtype of the cache."""
        self.derive(cache_dtype=self.dtype)

    def flop(self) -> Number:
        """Return 0, or 4 tokens kv_heads head_dim for a cache of a byte an element or less [FLOP]."""
        narrower = dtype_bytes(self.cache_dtype) < dtype_bytes(self.dtype) and dtype_bytes(self.cache_dtype) <= 1
        return (4.0 if narrower else 0.0) * self.tokens * self.kv_heads * self.head_dim

    def tensors(self) -> tuple[Tensor, ...]:
        """Return k and v [2, tokens, kv_heads, head_dim], the slots [tokens], and the entries of the cache."""
        shape = (2, self.tokens, self.kv_heads, self.head_dim)
        return (
            Tensor.input("kv", shape, self.dtype),
            Tensor.input("slots", (self.tokens,), "int64"),
            Tensor.output("cache", shape, self.cache_dtype),
        )

    def index_limit(self, name: str) -> Number:
        """Return the slots of the cache that are written."""
        return self.tokens
