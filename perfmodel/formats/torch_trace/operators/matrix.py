"""Maps calls of matrix products, convolutions and attention to operators of the model.

Each function takes a `Call` and returns the operator, or raises `NotModelledError` with the reason. The order of the
arguments is that of PyTorch's native_functions.yaml.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from perfmodel.formats.kernel_names import uses_tf32
from perfmodel.formats.torch_trace.call import Call, NotModelledError, Shape
from perfmodel.operators import Operator
from perfmodel.operators.attention import Attention
from perfmodel.operators.conv2d import Conv2d
from perfmodel.operators.gemm import Gemm

#: largest stride that is tried where a trace has only the sizes of a convolution: vision transformers cut images into
#: patches of up to 32 by 32
_LARGEST_STRIDE = 32
#: number of torch.ScalarType -> dtype of a product's result
_SCALAR_TYPES = {5: "fp16", 6: "fp32", 15: "bf16"}


def _math_dtype(call: Call, shape: Shape) -> str:
    """Return the dtype of the multiplications; kernels for fp32 tensors may round to TF32, as their names tell."""
    return "tf32" if shape.dtype == "fp32" and any(uses_tf32(name) for name in call.kernels) else shape.dtype


def _product(call: Call, a: Shape, b: Shape, *, bias: bool = False, out_dtype: str = "") -> Operator:
    """Return batch x [m, k] times [k, n]."""
    if len(a.dims) < 2 or len(b.dims) < 2 or a.dims[-1] != b.dims[-2]:
        raise NotModelledError(f"shapes {a.text()} and {b.text()} do not form a product")
    return Gemm(
        m=a.dims[-2],
        n=b.dims[-1],
        k=a.dims[-1],
        batch=math.prod(a.dims[:-2]),
        dtype=_math_dtype(call, a),
        bias=bias,
        out_dtype=out_dtype,
    )


def mm(call: Call) -> Operator:
    """aten::mm(self, mat2), aten::bmm(self, mat2)."""
    return _product(call, call.tensor(0), call.tensor(1))


def addmm(call: Call) -> Operator:
    """aten::addmm(self, mat1, mat2, beta, alpha), aten::baddbmm: self is added to the product.

    A self of the product's size adds as many FLOP as a bias, m n. It has m n instead of n elements, which are not
    counted, so that the bytes are too low.
    """
    return _product(call, call.tensor(1), call.tensor(2), bias=True)


def addmm_activation(call: Call) -> Operator:
    """aten::_addmm_activation(self, mat1, mat2, beta, alpha, use_gelu)."""
    a, b = call.tensor(1), call.tensor(2)
    kind = "gelu" if call.true(5) else "relu"
    return Gemm(m=a.dims[0], n=b.dims[-1], k=a.dims[-1], dtype=_math_dtype(call, a), bias=True, activation=kind)


def linear(call: Call) -> Operator:
    """aten::linear(input [..., k], weight [n, k], bias), if it launches kernels itself."""
    a, weight = call.tensor(0), call.tensor(1)
    if len(weight.dims) != 2 or a.dims[-1] != weight.dims[1]:
        raise NotModelledError(f"shapes {a.text()} and {weight.text()} do not form a product")
    rows = math.prod(a.dims[:-1])
    bias = call.optional(2) is not None
    return Gemm(m=rows, n=weight.dims[0], k=weight.dims[1], dtype=_math_dtype(call, a), bias=bias)


def matmul(call: Call) -> Operator:
    """aten::matmul(self, other), if it launches kernels itself; the batch axes of self fold into its rows."""
    a, b = call.tensor(0), call.tensor(1)
    if len(b.dims) == 2 and len(a.dims) > 2:
        a = Shape((math.prod(a.dims[:-1]), a.dims[-1]), a.dtype, a.distinct)
    return _product(call, a, b)


def mv(call: Call) -> Operator:
    """aten::mv(self [m, k], vec [k])."""
    return _matrix_vector(call, call.tensor(0), bias=False)


def addmv(call: Call) -> Operator:
    """aten::addmv(self, mat [m, k], vec [k], beta, alpha)."""
    return _matrix_vector(call, call.tensor(1), bias=True)


def _matrix_vector(call: Call, matrix: Shape, *, bias: bool) -> Operator:
    if len(matrix.dims) != 2:
        raise NotModelledError(f"a matrix of shape {matrix.text()}")
    # the product of a row with the transposed matrix, whose bias is as long as the result
    return Gemm(m=1, n=matrix.dims[0], k=matrix.dims[1], dtype=_math_dtype(call, matrix), bias=bias)


def scaled_mm(call: Call) -> Operator:
    """aten::_scaled_mm(self, mat2, scale_a, scale_b, bias, scale_result, out_dtype, use_fast_accum)."""
    out = call.ints(6) if call.has_values else ()
    dtype = _SCALAR_TYPES.get(out[0], "") if out else ""
    return _product(call, call.tensor(0), call.tensor(1), bias=call.optional(4) is not None, out_dtype=dtype)


def _sizes(x: Shape, weight: Shape) -> dict[str, Any]:
    """Return the sizes of a convolution of images [n, c, h, w] with a weight [k, c / groups, r, s]."""
    return dict(zip("nchwkrs", (*x.dims, weight.dims[0], *weight.dims[2:]), strict=True))


def _convolution(
    call: Call, stride: int, padding: int, dilation: int, groups: int | None, *, first: int = 0, gradient: str = ""
) -> Operator:
    """Return a convolution, or a ``gradient`` of it.

    The numbers are positions of arguments, with input and weight at ``first`` and after it.
    """
    x, weight = call.tensor(first), call.tensor(first + 1)
    if len(x.dims) != 4 or len(weight.dims) != 4:
        raise NotModelledError(f"it is a convolution in {len(x.dims) - 2} dimensions")
    if not call.has_values and len(call.result) == 4:
        return _from_sizes(call, x, weight, call.result)
    return Conv2d(
        **_sizes(x, weight),
        stride=_one(call, "stride", stride),
        padding=_one(call, "padding", padding),
        dilation=_one(call, "dilation", dilation),
        groups=x.dims[1] if groups is None else _one(call, "groups", groups),
        layout="nhwc" if x.channels_last else "nchw",
        dtype=_math_dtype(call, x),
        backward=bool(gradient),
        gradient=gradient or "both",
    )


def _one(call: Call, name: str, index: int) -> int:
    """Return the value of an argument that has to be equal in all directions."""
    values = set(call.ints(index))
    if len(values) != 1:
        raise NotModelledError(f"the {name} differs by direction" if values else f"the trace does not say the {name}")
    return values.pop()


def convolution(call: Call) -> Operator:
    """aten::convolution(input, weight, bias, stride, padding, dilation, transposed, output_padding, groups)."""
    if call.true(6):
        raise NotModelledError("it is a transposed convolution")
    return _convolution(call, 3, 4, 5, 8)


def conv2d(call: Call) -> Operator:
    """aten::conv2d(input, weight, bias, stride, padding, dilation, groups), cudnn_convolution_relu."""
    return _convolution(call, 3, 4, 5, 6)


def cudnn_convolution(call: Call) -> Operator:
    """aten::cudnn_convolution(self, weight, padding, stride, dilation, groups, benchmark, ...)."""
    return _convolution(call, 3, 2, 4, 5)


def miopen_convolution(call: Call) -> Operator:
    """aten::miopen_convolution(self, weight, bias, padding, stride, dilation, groups, benchmark, deterministic)."""
    return _convolution(call, 4, 3, 5, 6)


def depthwise(call: Call) -> Operator:
    """aten::_conv_depthwise2d(self, weight, kernel_size, bias, stride, padding, dilation)."""
    return _convolution(call, 4, 5, 6, None)


def convolution_backward(call: Call) -> Operator:
    """aten::convolution_backward(grad_output, input, weight, bias_sizes, stride, ..., groups, output_mask).

    Which gradients are computed output_mask says. That of the bias, a sum over grad_output, is not counted.
    """
    if call.true(7):
        raise NotModelledError("it is a transposed convolution")
    mask = [word.strip().lower() == "true" for word in call.value(10).strip("[]() ").split(",")]
    if not any(mask[:2]):
        raise NotModelledError("the trace does not say which gradients of the convolution are computed")
    gradient = "both" if all(mask[:2]) else "input" if mask[0] else "weight"
    return _convolution(call, 4, 5, 6, 9, first=1, gradient=gradient)


def cudnn_gradient(call: Call) -> Operator:
    """aten::cudnn_convolution_backward_input, ..._weight, with the arguments of aten::cudnn_convolution_backward.

    These are input, grad_output, weight. The traces of 2021 that have these operators have shapes, but no values. FLOP
    and bytes follow from the sizes of grad_output as well as from stride and padding, so any stride and padding that
    lead to these sizes give the right operator.
    """
    x, dy, weight = (call.tensor(index) for index in range(3))
    if not len(x.dims) == len(dy.dims) == len(weight.dims) == 4:
        raise NotModelledError("the trace does not have the three tensors of the convolution")
    return _from_sizes(call, x, weight, dy.dims, gradient="input" if call.name.endswith("input") else "weight")


def _from_sizes(call: Call, x: Shape, weight: Shape, result: tuple[int, ...], gradient: str = "") -> Operator:
    """Return a convolution from the sizes of its three tensors, or one of its gradients."""
    if x.dims[1] % weight.dims[1]:
        raise NotModelledError(f"its {x.dims[1]} channels do not form groups of {weight.dims[1]}")
    _, c, h, w = x.dims
    _, per_group, r, s = weight.dims
    for stride in range(1, _LARGEST_STRIDE + 1):
        # the least padding that gives as many rows; since sizes are rounded down, a few more may do so too
        least = max(0, -((h - r - (result[2] - 1) * stride) // 2))
        for padding in range(least, min(least + stride, max(r, s) // 2 + 1)):
            sizes = [(length + 2 * padding - taps) // stride + 1 for length, taps in ((h, r), (w, s))]
            if sizes == [*result[2:]]:
                return Conv2d(
                    **_sizes(x, weight),
                    stride=stride,
                    padding=padding,
                    groups=c // per_group,
                    dtype=_math_dtype(call, x),
                    backward=bool(gradient),
                    gradient=gradient or "both",
                )
    raise NotModelledError("no stride and padding lead from its input to its output")


def _attention(call: Call, causal: bool, *, heads_first: bool, first: int = 0) -> Operator:
    """Return attention over query, key and value: [batch, heads, seq, head_dim], or with the sequence before heads.

    The query is at position ``first``; behind the gradient of the result it is the backward pass.
    """
    q, k, v = (call.tensor(index) for index in range(first, first + 3))
    if not len(q.dims) == len(k.dims) == len(v.dims) == 4:
        raise NotModelledError("it is attention over sequences of different lengths, packed into one")
    if q.dims[-1] != v.dims[-1]:
        raise NotModelledError(f"its head_dim is {q.dims[-1]} for queries and {v.dims[-1]} for values")
    head, seq = (1, 2) if heads_first else (2, 1)
    return Attention(
        batch=q.dims[0],
        heads=q.dims[head],
        kv_heads=k.dims[head],
        seq_q=q.dims[seq],
        seq_kv=k.dims[seq],
        head_dim=q.dims[3],
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
