"""Linear attention: a state instead of a cache of keys, chunk by chunk."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from perfmodel.core.work import Number, Tensor, minimum, plain
from perfmodel.operators.base import Operator, choice, dtype_of, flag, size
from perfmodel.operators.states import carried_states, check_carried, check_key_heads


@dataclass(frozen=True, kw_only=True, eq=False)
class LinearAttention(Operator):
    """o[t] = q[t] S[t], S[t] = decay[t] S[t - 1] + k[t]^T v[t], with a state S of head_dim x value_dim for each head.

    It is causal. "recurrent" steps through the tokens: 4 d e FLOP a token and head, d = head_dim, e = value_dim.
    "chunked" (GLA, Yang et al. 2023, arXiv 2312.06635; SSD, Dao and Gu 2024, arXiv 2405.21060) computes chunks of C
    tokens as attention without softmax, 2 C (d + e), and passes the state on between them, 4 d e: with d = e = N it is
    4 C d + 4 d N. Heads that share a key head share its 2 C d. Mamba-2 names q, k and v C, B and x; d is the size of
    its state, and its groups are key heads.

    Traffic reads q, k, v and a decay of each token and head and writes o; chunked it also writes the state of every
    chunk in fp32 and reads it, which no floor counts: one kernel keeps it on the chip. Backward: the products of the
    forward pass, one of each pair anew, and two gradients each, 2.5 times the FLOP; it reads the inputs and do and
    writes dq, dk and dv.

    A server's step carries the state: it is read and written, and is all the traffic of a single token.

    Parameters
    ----------
    batch, heads, seq : sequences, heads of v and o, and tokens of a sequence.
    key_heads : heads of q and k, each for heads / key_heads neighbouring heads; defaults to ``heads``.
    head_dim, value_dim : columns of q and k, and of v and o; ``value_dim`` defaults to ``head_dim``.
    chunk : tokens of a chunk.
    algorithm : "chunked" or "recurrent".
    carried : read a first state and write the last one, as a server does between its steps. Without it the state starts
        at zero and is dropped. The backward pass has none.
    state_dtype : of a carried state, by default fp32.
    backward : the gradient.

    Raises
    ------
    UsageError
        ``carried`` and ``backward`` at once.
    """

    op: ClassVar[str] = "linear_attention"
    preferred_engine: ClassVar[str] = "tensor"

    batch: Number = size(1, doc="sequences")
    heads: Number = size(doc="heads of v and o")
    key_heads: Number = size(None, doc="heads of q and k; default as heads")
    seq: Number = size(doc="tokens of a sequence")
    head_dim: Number = size(doc="columns of q and k")
    value_dim: Number = size(None, doc="columns of v; default as head_dim")
    chunk: Number = size(64, doc="tokens of a chunk")
    algorithm: str = choice("chunked", ("chunked", "recurrent"), doc="products of chunks, or one token after another")
    carried: bool = flag(False, quiet=True, doc="read a first state and write the last one")
    state_dtype: str = dtype_of(doc="dtype of a carried state; default fp32")
    backward: bool = flag(False, quiet=True, doc="the gradient")

    def check(self) -> None:
        """Derive the heads of k and the columns of v; check the groups of heads, and that no gradient is carried."""
        self.derive(key_heads=self.heads, value_dim=self.head_dim, state_dtype="fp32")
        check_key_heads(self)
        check_carried(self)

    @property
    def chunks(self) -> Number:
        """Chunks of a sequence."""
        return plain(np.ceil(np.asarray(self.seq / minimum(1.0 * self.chunk, 1.0 * self.seq))))

    def flop(self) -> Number:
        """Return batch seq (heads 4 d e [+ 2 C (key_heads d + heads e)]), backward 2.5 times that [FLOP]."""
        each = 4.0 * self.heads * self.head_dim * self.value_dim
        if self.algorithm == "chunked":
            length = minimum(1.0 * self.chunk, 1.0 * self.seq)
            each = each + 2.0 * length * (self.key_heads * self.head_dim + self.heads * self.value_dim)
        return (2.5 if self.backward else 1.0) * self.batch * self.seq * each

    def kernels(self) -> Number:
        """Return the kernels of one call: one, or those of flash-linear-attention (ops/simple_gla/chunk.py).

        Chunked: sums of the logarithms of the decays, states, and o. Backward the states anew, their gradients, those
        of q and k, that of v, and the sums.
        """
        if self.algorithm == "recurrent":
            return 1.0
        return 5.0 if self.backward else 3.0

    def tensors(self) -> tuple[Tensor, ...]:
        """Return q, k, v, decay and o [batch, heads, seq, ...], and the states; backward also do, dq, dk and dv."""
        tokens = (self.batch, self.heads, self.seq)
        keys, values = (self.batch, self.key_heads, self.seq, self.head_dim), (*tokens, self.value_dim)
        states = (self.batch, self.heads, self.chunks, self.head_dim, self.value_dim)
        inputs = (
            Tensor.input("q", keys, self.dtype),
            Tensor.input("k", keys, self.dtype),
            Tensor.input("v", values, self.dtype),
            Tensor.input("decay", tokens, "fp32"),
        )
        kept: tuple[Tensor, ...] = ()
        if self.algorithm == "chunked":
            kept = (Tensor.intermediate("states", states, "fp32").inner("states"),)
        if not self.backward:
            before, after = carried_states(self, self.heads, self.head_dim, self.value_dim)
            return (*inputs, *before, Tensor.output("o", values, self.dtype), *after, *kept)
        return (
            *inputs,
            Tensor.input("do", values, self.dtype),
            Tensor.output("dq", keys, self.dtype),
            Tensor.output("dk", keys, self.dtype),
            Tensor.output("dv", values, self.dtype),
            *kept,
        )

    def buffers(self) -> tuple[Tensor, ...]:
        """Return what a call is given and what it returns; the states of the chunks are its own."""
        return tuple(tensor for tensor in self.tensors() if tensor.name != "states")
