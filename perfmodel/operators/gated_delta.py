"""The gated delta rule: linear attention that replaces what its state holds for a key, and forgets."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from perfmodel.core.work import Number, Tensor, ceil, minimum
from perfmodel.operators.base import Operator, choice, dtype_of, flag, size
from perfmodel.operators.states import carried_states, check_carried, check_key_heads


@dataclass(frozen=True, kw_only=True, eq=False)
class GatedDelta(Operator):
    """S' = decay[t] S[t - 1], u = beta[t] (v[t] - k[t] S'), S[t] = S' + k[t]^T u, o[t] = q[t] S[t] for each head.

    The state S is d x e, d = head_dim, e = value_dim; decay is in (0, 1], beta in (0, 1), and keys have length 1 (Gated
    DeltaNet, Yang, Kautz and Hatamizadeh 2024, arXiv 2412.06464; Qwen3-Next, Qwen3.5). It is causal.

    - "recurrent" steps through the tokens: k S', k^T u and q S are 6 d e FLOP a token and head.
    - "chunked" computes C tokens at once with the inverse T of a C x C triangle (Yang et al. 2024, arXiv 2406.06484):
      K K^T, W = T K and Q K^T are 2 C d each, U = T V and (Q K^T) V' 2 C e each, with V' = U - W S, and W S, Q S and
      K^T V' 2 d e each: 6 d e + 2 C (3 d + 2 e). The triangle's inverse, about C^2 / 3, is left out.
    - Backward: two gradients of each product, and once more those whose results the forward pass does not keep.
      Recurrent these are k S' and k^T u: 16 d e. Chunked they are K K^T, Q K^T, W, U, W S and K^T V', and T is kept:
      16 d e + 2 C (9 d + 5 e).

    Traffic reads q, k, v, decay and beta, and writes o. Chunked it also has the intermediate results that the kernels
    of flash-linear-attention write and read (@ 18039d81, ops/gated_delta_rule/chunk_fwd.py, chunk.py, wy_fast.py;
    ops/common/chunk_delta_h.py, chunk_o.py): T, W, U and V' of all tokens and the states of all chunks, all in the
    dtype. One kernel can keep them on the chip, and so they are in no floor. What several kernels read counts once.
    Backward reads do and writes the gradients of all inputs; its intermediate results are T, written by the forward
    pass, W, U, V', dV', dW, the states and their gradients.

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
    """

    op: ClassVar[str] = "gated_delta"
    preferred_engine: ClassVar[str] = "tensor"

    batch: Number = size(1, doc="sequences")
    heads: Number = size(doc="heads of v and o")
    key_heads: Number = size(None, doc="heads of q and k; default as heads")
    seq: Number = size(doc="tokens of a sequence")
    head_dim: Number = size(doc="columns of q and k")
    value_dim: Number = size(None, doc="columns of v; default as head_dim")
    chunk: Number = size(64, doc="tokens of a chunk")
    algorithm: str = choice("chunked", ("chunked", "recurrent"), doc="products of chunks, or one token after another")
    carried: bool = flag(False, doc="read a first state and write the last one")
    state_dtype: str = dtype_of(doc="dtype of a carried state; default fp32")
    backward: bool = flag(False, quiet=True, doc="the gradient")

    def check(self) -> None:
        """Derive the heads of k and the columns of v; check the groups of heads."""
        self.derive(key_heads=self.heads, value_dim=self.head_dim, state_dtype="fp32")
        check_key_heads(self)
        check_carried(self)

    @property
    def length(self) -> Number:
        """Tokens of a chunk, of a sequence that is shorter all of them."""
        return minimum(1.0 * self.chunk, 1.0 * self.seq)

    @property
    def chunks(self) -> Number:
        """Chunks of a sequence."""
        return ceil(self.seq / self.length)  # type: ignore[no-any-return]

    def flop(self) -> Number:
        """Return batch heads seq (6 d e [+ 2 C (3 d + 2 e)]), backward (16 d e [+ 2 C (9 d + 5 e)]) [FLOP]."""
        states, of_keys, of_values = (16.0, 9.0, 5.0) if self.backward else (6.0, 3.0, 2.0)
        each = states * self.head_dim * self.value_dim
        if self.algorithm == "chunked":
            each = each + 2.0 * self.length * (of_keys * self.head_dim + of_values * self.value_dim)
        return self.batch * self.heads * self.seq * each

    def kernels(self) -> Number:
        """Return the kernels of one call: one, or those of flash-linear-attention.

        Chunked: sums of the logarithms of the decays, T, W with U, the states with V', and o. Backward W with U and the
        states with V' anew, dV' within chunks, the gradients of states, those of q, k and W, those of T's inputs, two
        sums of gradients, and the sums of the decays.
        """
        if self.algorithm == "recurrent":
            return 1.0
        return 9.0 if self.backward else 5.0

    def tensors(self) -> tuple[Tensor, ...]:
        """Return q, k, v, decay, beta and o, the states that are carried, and what the kernels leave each other."""
        tokens = (self.batch, self.heads, self.seq)
        keys, values = (self.batch, self.key_heads, self.seq, self.head_dim), (*tokens, self.value_dim)
        inputs = (
            Tensor.input("q", keys, self.dtype),
            Tensor.input("k", keys, self.dtype),
            Tensor.input("v", values, self.dtype),
            Tensor.input("decay", tokens, "fp32"),
            Tensor.input("beta", tokens, "fp32"),
        )
        if self.backward:
            return (
                *inputs,
                Tensor.input("do", values, self.dtype),
                Tensor.output("dq", keys, self.dtype),
                Tensor.output("dk", keys, self.dtype),
                Tensor.output("dv", values, self.dtype),
                Tensor.output("ddecay", tokens, "fp32"),
                Tensor.output("dbeta", tokens, "fp32"),
                *self._inner(),
            )
        before, after = carried_states(self, self.heads, self.head_dim, self.value_dim)
        return (*inputs, *before, Tensor.output("o", values, self.dtype), *after, *self._inner())

    def _inner(self) -> tuple[Tensor, ...]:
        """Return what the kernels of chunks write and read; no floor counts it, since a cache or a chip may hold it."""
        if self.algorithm == "recurrent":
            return ()
        tokens = (self.batch, self.heads, self.seq)
        keys, values = (*tokens, self.head_dim), (*tokens, self.value_dim)
        states = (self.batch, self.heads, self.chunks, self.head_dim, self.value_dim)
        passes: tuple[tuple[str, tuple[Any, ...], float, float], ...]  # name, shape, reads, writes
        passes = (
            ("t", (*tokens, self.length), 1.0, 1.0),
            ("w", keys, 1.0, 1.0),
            ("u", values, 1.0, 1.0),
            ("v_new", values, 1.0, 1.0),
            ("states", states, 1.0, 1.0),
        )
        if self.backward:
            passes = (
                ("t", (*tokens, self.length), 2.0, 0.0),  # for W with U, and for the gradients of its inputs
                ("w", keys, 2.0, 1.0),  # for the states, and for their gradients
                *passes[2:],
                ("dstates", states, 1.0, 1.0),
                ("dv_new", values, 3.0, 2.0),  # within chunks, then with the states, then for dW and for T's inputs
                ("dw", keys, 1.0, 1.0),
            )
        return tuple(
            Tensor(name, shape, self.dtype, reads, writes).inner(name) for name, shape, reads, writes in passes
        )

    def buffers(self) -> tuple[Tensor, ...]:
        """Return what a call is given and what it returns; what the kernels leave each other is its own."""
        own = {tensor.name for tensor in self._inner()}
        return tuple(tensor for tensor in self.tensors() if tensor.name not in own)
