"""Calls of a framework's matrix products, convolutions and attention as operators of the model.

Each function takes a `Call` and returns the operator, or raises `NotModelledError` with the reason. The order of the
arguments is that of PyTorch's native_functions.yaml.
"""

from __future__ import annotations

import math
from typing import Any

from perfmodel.formats.kernel_names import uses_tf32
from perfmodel.formats.torch_trace.call import Call, NotModelledError, Shape
from perfmodel.operators import Operator
from perfmodel.operators.attention import Attention
from perfmodel.operators.conv2d import Conv2d
from perfmodel.operators.gemm import Gemm

#: strides that are tried where only the sizes of a convolution are known
_LARGEST_STRIDE = 8
#: numbers of torch.ScalarType that a product can be written in
_SCALAR_TYPES = {5: "fp16", 6: "fp32", 15: "bf16"}


def _math_dtype(call: Call, shape: Shape) -> str:
    """Return the dtype that the product is done in: fp32 tensors may be rounded to TF32, as the kernel's name says."""
    return "tf32" if shape.dtype == "fp32" and any(uses_tf32(name) for name in call.kernels) else shape.dtype


def _product(call: Call, a: Shape, b: Shape, *, bias: bool = False, out_dtype: str = "") -> Operator:
    """Return batch x [m, k] times [k, n]."""
    if len(a.dims) < 2 or len(b.dims) < 2 or a.dims[-1] != b.dims[-2]:
        raise NotModelledError(f"shapes {a.text()} and {b.text()} that are no product")
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

    A self of the product's size adds as much as a bias, m n FLOP; its bytes, m n instead of n elements, do not count.
    """
    return _product(call, call.tensor(1), call.tensor(2), bias=True)


def addmm_activation(call: Call) -> Operator:
    """aten::_addmm_activation(self, mat1, mat2, beta, alpha, use_gelu)."""
    a, b = call.tensor(1), call.tensor(2)
    kind = "gelu" if call.true(5) else "relu"
    return Gemm(m=a.dims[0], n=b.dims[-1], k=a.dims[-1], dtype=_math_dtype(call, a), bias=True, activation=kind)


def linear(call: Call) -> Operator:
    """aten::linear(input [..., k], weight [n, k], bias), where it launches kernels itself."""
    a, weight = call.tensor(0), call.tensor(1)
    if len(weight.dims) != 2 or a.dims[-1] != weight.dims[1]:
        raise NotModelledError(f"shapes {a.text()} and {weight.text()} that are no product")
    rows = math.prod(a.dims[:-1])
    bias = call.optional(2) is not None
    return Gemm(m=rows, n=weight.dims[0], k=weight.dims[1], dtype=_math_dtype(call, a), bias=bias)


def matmul(call: Call) -> Operator:
    """aten::matmul(self, other), where it launches kernels itself: the batch axes of self fold into its rows."""
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
    # as the product of a row with the transposed matrix, so that the bias is as long as the result
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
    call: Call, stride: int, padding: int, dilation: int, groups: int | None, *, first: int = 0, count: int = 1
) -> Operator:
    """Return a convolution with input and weight from ``first`` on; the others are places of arguments."""
    x, weight = call.tensor(first), call.tensor(first + 1)
    if len(x.dims) != 4 or len(weight.dims) != 4:
        raise NotModelledError(f"a convolution in {len(x.dims) - 2} dimensions")
    return Conv2d(
        **_sizes(x, weight),
        stride=_one(call, "stride", stride),
        padding=_one(call, "padding", padding),
        dilation=_one(call, "dilation", dilation),
        groups=x.dims[1] if groups is None else _one(call, "groups", groups),
        dtype=_math_dtype(call, x),
        count=count,
    )


def _one(call: Call, name: str, index: int) -> int:
    """Return the value of an argument that is one for all directions."""
    values = set(call.ints(index))
    if len(values) != 1:
        raise NotModelledError(f"a {name} that differs by direction" if values else f"a {name} that is not said")
    return values.pop()


def convolution(call: Call) -> Operator:
    """aten::convolution(input, weight, bias, stride, padding, dilation, transposed, output_padding, groups)."""
    if call.true(6):
        raise NotModelledError("a transposed convolution")
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

    The gradient of the input reads grad_output and the weights and writes what the input holds; that of the weights
    reads grad_output and the input. Each has the FLOP and the tensors of the convolution itself, so that a call is one
    or two of them, as output_mask says. The gradient of the bias, a sum over grad_output, is left out.
    """
    if call.true(7):
        raise NotModelledError("a transposed convolution")
    asked = [word.strip().lower() == "true" for word in call.value(10).strip("[]() ").split(",")]
    if not any(asked[:2]):
        raise NotModelledError("gradients of a convolution that the trace does not name")
    return _convolution(call, 4, 5, 6, 9, first=1, count=sum(asked[:2]))


def cudnn_gradient(call: Call) -> Operator:
    """aten::cudnn_convolution_backward_input, ..._weight, with the arguments of aten::cudnn_convolution_backward.

    These are input, grad_output, weight: the traces of 2021 that have these operators hold shapes, but no values. The
    sizes of grad_output say the FLOP and the bytes as well as stride and padding do: any that lead to it will do.
    """
    x, made, weight = (call.tensor(index) for index in range(3))
    if not len(x.dims) == len(made.dims) == len(weight.dims) == 4 or x.dims[1] % weight.dims[1]:
        raise NotModelledError("a gradient of a convolution whose three tensors the trace does not hold")
    _, c, h, w = x.dims
    _, per_group, r, s = weight.dims
    for stride in range(1, _LARGEST_STRIDE + 1):
        # the least padding that gives as many rows; rounding down leaves room for a few more
        least = max(0, -((h - r - (made.dims[2] - 1) * stride) // 2))
        for padding in range(least, min(least + stride, max(r, s) // 2 + 1)):
            sizes = [(length + 2 * padding - taps) // stride + 1 for length, taps in ((h, r), (w, s))]
            if sizes == [*made.dims[2:]]:
                return Conv2d(
                    **_sizes(x, weight),
                    stride=stride,
                    padding=padding,
                    groups=c // per_group,
                    dtype=_math_dtype(call, x),
                )
    raise NotModelledError("a convolution whose stride and padding its sizes do not say")


def _attention(call: Call, causal: bool, *, heads_first: bool) -> Operator:
    """Return attention with query, key and value first: [batch, heads, seq, head_dim], or with the sequence first."""
    q, k, v = (call.tensor(index) for index in range(3))
    if not len(q.dims) == len(k.dims) == len(v.dims) == 4:
        raise NotModelledError("attention over sequences of different lengths, packed into one")
    if q.dims[-1] != v.dims[-1]:
        raise NotModelledError(f"attention with head_dim {q.dims[-1]} for queries and {v.dims[-1]} for values")
    head, place = (1, 2) if heads_first else (2, 1)
    return Attention(
        batch=q.dims[0],
        heads=q.dims[head],
        kv_heads=k.dims[head],
        seq_q=q.dims[place],
        seq_kv=k.dims[place],
        head_dim=q.dims[3],
        # one query sees everything in the model's alignment; PyTorch's is_causal aligns at the first key, so that it
        # would see one: nobody asks for that
        causal=causal and q.dims[place] > 1,
        dtype=q.dtype,
        kv_dtype=k.dtype,
    )


def sdpa_flash(call: Call) -> Operator:
    """aten::_scaled_dot_product_flash_attention(query, key, value, dropout_p, is_causal, return_debug_mask)."""
    return _attention(call, call.true(4), heads_first=True)


def sdpa_efficient(call: Call) -> Operator:
    """aten::_scaled_dot_product_efficient_attention(query, key, value, attn_bias, compute_log_sumexp, dropout_p, is_causal).

    The cudnn and overrideable ones and aten::scaled_dot_product_attention differ in the place of is_causal only.
    """  # noqa: E501 -- a signature
    return _attention(call, call.true(6), heads_first=True)


def sdpa(call: Call) -> Operator:
    """aten::scaled_dot_product_attention(query, key, value, attn_mask, dropout_p, is_causal), kernels of its own."""
    return _attention(call, call.true(5), heads_first=True)


def flash_forward(call: Call) -> Operator:
    """aten::_flash_attention_forward(query, key, value, cum_seq_q, cum_seq_k, max_q, max_k, dropout_p, is_causal)."""
    return _attention(call, call.true(8), heads_first=False)


def efficient_forward(call: Call) -> Operator:
    """aten::_efficient_attention_forward(query, key, value, bias, cu_seqlens_q, cu_seqlens_k, max_seqlen_q, ...).

    Then max_seqlen_k (since PyTorch 2.2), dropout_p and custom_mask_type, 0 for none; the dropout is the first number
    with a point.
    """
    values = [call.value(index) for index in range(6, 10)]
    dropout = next((place for place, value in enumerate(values) if "." in value), None)
    if dropout is None or dropout + 1 >= len(values):
        raise NotModelledError("attention that does not say whether it is causal")
    return _attention(call, values[dropout + 1] not in ("", "0"), heads_first=False)


def cudnn_forward(call: Call) -> Operator:
    """aten::_cudnn_attention_forward(query, key, value, attn_bias, cum_seq_q, ..., max_k, lse, dropout_p, causal)."""
    return _attention(call, call.true(10), heads_first=True)


def flash_attn_package(call: Call) -> Operator:
    """flash_attn::_flash_attn_forward(q, k, v, dropout_p, softmax_scale, causal, window_left, window_right, ...)."""
    if any(left not in ((), (-1,)) for left in (call.ints(6), call.ints(7))):
        raise NotModelledError("attention with a window")
    return _attention(call, call.true(5), heads_first=False)
