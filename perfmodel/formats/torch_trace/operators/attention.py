"""Maps calls of attention, forward and backward, to operators of the model.

Each function takes a `Call` and returns the operator, or raises `NotModelledError` with the reason. The order of the
arguments is that of PyTorch's native_functions.yaml.
"""

from __future__ import annotations

from collections.abc import Callable

from perfmodel.formats.torch_trace.call import Call, NotModelledError
from perfmodel.operators import Operator
from perfmodel.operators.attention import Attention


def _attention(call: Call, causal: bool, *, heads_first: bool, first: int = 0) -> Operator:
    """Return attention over query, key and value: [batch, heads, seq, head_dim], or with the sequence before heads.

    The query is at position ``first``; behind the gradient of the result it is the backward pass.
    """
    q, k, v = (call.tensor(index) for index in range(first, first + 3))
    if not len(q.dims) == len(k.dims) == len(v.dims) == 4:
        raise NotModelledError("it is attention over sequences of different lengths, packed into one")
    head, seq = (1, 2) if heads_first else (2, 1)
    return Attention(
        batch=q.dims[0],
        heads=q.dims[head],
        kv_heads=k.dims[head],
        seq_q=q.dims[seq],
        seq_kv=k.dims[seq],
        head_dim=q.dims[3],
        value_dim=v.dims[3] if v.dims[3] != q.dims[3] else 0,
        # a single query sees all keys in the model, which aligns at the last key; PyTorch's is_causal aligns at the
        # first key, so that the query would see only that one, which no program means
        causal=causal and q.dims[seq] > 1,
        dtype=q.dtype,
        kv_dtype=k.dtype,
        backward=first > 0,
    )


def sdpa_flash(call: Call) -> Operator:
    """aten::_scaled_dot_product_flash_attention(query, key, value, dropout_p, is_causal, return_debug_mask)."""
    return _attention(call, call.true(4), heads_first=True)


def sdpa_efficient(call: Call) -> Operator:
    """aten::_scaled_dot_product_efficient_attention(query, key, value, attn_bias, compute_log_sumexp, dropout_p, is_causal).

    The cudnn and overrideable variants have is_causal in the same place.
    """  # noqa: E501 -- a signature
    return _attention(call, call.true(6), heads_first=True)


def sdpa(call: Call) -> Operator:
    """aten::scaled_dot_product_attention(query, key, value, attn_mask, dropout_p, is_causal), with its own kernels."""
    return _attention(call, call.true(5), heads_first=True)


def flash_forward(call: Call) -> Operator:
    """aten::_flash_attention_forward(query, key, value, cum_seq_q, cum_seq_k, max_q, max_k, dropout_p, is_causal)."""
    return _attention(call, call.true(8), heads_first=False)


def efficient_forward(call: Call) -> Operator:
    """aten::_efficient_attention_forward(query, key, value, bias, cu_seqlens_q, cu_seqlens_k, max_seqlen_q, ...).

    Then come max_seqlen_k (since PyTorch 2.2), dropout_p and custom_mask_type, which is 0 for none. The dropout is the
    first number with a point.
    """
    values = [call.value(index) for index in range(6, 10)]
    dropout = next((position for position, value in enumerate(values) if "." in value), None)
    if dropout is None or dropout + 1 >= len(values):
        raise NotModelledError("the trace does not say whether the attention is causal")
    return _attention(call, values[dropout + 1] not in ("", "0"), heads_first=False)


def cudnn_forward(call: Call) -> Operator:
    """aten::_cudnn_attention_forward(query, key, value, attn_bias, cum_seq_q, ..., max_k, lse, dropout_p, causal)."""
    return _attention(call, call.true(10), heads_first=True)


def gradients(causal: int, *, heads_first: bool) -> Callable[[Call], Operator]:
    """Return the mapping of a gradient (grad_out, query, key, value, ...), with the place of ``is_causal``.

    _efficient_attention_backward has custom_mask_type there, which is 0 for none.
    """

    def build(call: Call) -> Operator:
        return _attention(call, call.true(causal), heads_first=heads_first, first=1)

    return build


def flash_attn_package(call: Call) -> Operator:
    """flash_attn::_flash_attn_forward(q, k, v, dropout_p, softmax_scale, causal, window_left, window_right, ...)."""
    if any(left not in ((), (-1,)) for left in (call.ints(6), call.ints(7))):
        raise NotModelledError("it is attention with a window")
    return _attention(call, call.true(5), heads_first=False)
