"""Maps calls of matrix products to operators of the model.

Each function takes a `Call` and returns the operator, or raises `NotModelledError` with the reason. The order of the
arguments is that of PyTorch's native_functions.yaml.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import Any

from perfmodel.formats.torch_trace.call import Call, NotModelledError, Shape, modelled
from perfmodel.operators import Operator
from perfmodel.operators.gemm import Gemm
from perfmodel.profile.arithmetic import uses_tf32

#: number of torch.ScalarType -> dtype of a product's result
_SCALAR_TYPES = {5: "fp16", 6: "fp32", 15: "bf16"}


def math_dtype(call: Call, shape: Shape) -> str:
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
        dtype=math_dtype(call, a),
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


def addbmm(call: Call) -> Operator:
    """aten::addbmm(self, batch1, batch2, beta, alpha): the products of a batch are added up, as one of a longer sum."""
    a, b = call.tensor(1), call.tensor(2)
    if len(a.dims) != 3 or len(b.dims) != 3 or a.dims[0] != b.dims[0] or a.dims[2] != b.dims[1]:
        raise NotModelledError(f"shapes {a.text()} and {b.text()} do not form a product")
    return Gemm(m=a.dims[1], n=b.dims[2], k=a.dims[0] * a.dims[2], dtype=math_dtype(call, a), bias=True)


def addmm_activation(call: Call) -> Operator:
    """aten::_addmm_activation(self, mat1, mat2, beta, alpha, use_gelu)."""
    a, b = call.tensor(1), call.tensor(2)
    kind = "gelu" if call.true(5) else "relu"
    return Gemm(m=a.dims[0], n=b.dims[-1], k=a.dims[-1], dtype=math_dtype(call, a), bias=True, activation=kind)


def linear(call: Call) -> Operator:
    """aten::linear(input [..., k], weight [n, k], bias), if it launches kernels itself."""
    a, weight = call.tensor(0), call.tensor(1)
    if len(weight.dims) != 2 or a.dims[-1] != weight.dims[1]:
        raise NotModelledError(f"shapes {a.text()} and {weight.text()} do not form a product")
    rows = math.prod(a.dims[:-1])
    bias = call.optional(2) is not None
    return Gemm(m=rows, n=weight.dims[0], k=weight.dims[1], dtype=math_dtype(call, a), bias=bias)


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
    return Gemm(m=1, n=matrix.dims[0], k=matrix.dims[1], dtype=math_dtype(call, matrix), bias=bias)


def dot(call: Call) -> Operator:
    """aten::dot(self, tensor), aten::vdot."""
    x = call.tensor(0)
    return Gemm(m=1, n=1, k=x.numel, dtype=math_dtype(call, x))


def distances(call: Call) -> Operator:
    """aten::_euclidean_dist(x1 [..., m, k], x2 [..., n, k]), a product; aten::_cdist_forward, by plain arithmetic.

    The former multiplies [-2 x1, norms, 1] by [x2, 1, norms], which are k + 2 long. Each pair of numbers of the latter
    takes 3 FLOP or more, of which two are counted.
    """
    a, b = call.tensor(0), call.tensor(1)
    as_product = call.name == "aten::_euclidean_dist"
    return _distances(a, b, k=a.dims[-1] + 2 * as_product, engine="auto" if as_product else "vector")


def distances_backward(call: Call) -> Operator:
    """aten::_cdist_backward(grad, x1, x2, p, cdist): the gradient of x1."""
    a, b = call.tensor(1), call.tensor(2)
    return _distances(a, b, k=a.dims[-1], engine="vector")


def _distances(a: Shape, b: Shape, *, k: int, engine: str) -> Operator:
    if len(a.dims) < 2 or len(b.dims) < 2 or a.dims[-1] != b.dims[-1]:
        raise NotModelledError(f"shapes {a.text()} and {b.text()} have no distances")
    batch = max(math.prod(a.dims[:-2]), math.prod(b.dims[:-2]))
    return Gemm(batch=batch, m=a.dims[-2], n=b.dims[-2], k=k, engine=engine, dtype=a.dtype)


def scaled_mm(call: Call) -> Operator:
    """aten::_scaled_mm(self, mat2, scale_a, scale_b, bias, scale_result, out_dtype, use_fast_accum)."""
    return _product(call, call.tensor(0), call.tensor(1), bias=call.optional(4) is not None, out_dtype=_out(call, 6))


def scaled_mm_by_recipe(call: Call) -> Operator:
    """aten::_scaled_mm_v2(self, mat2, scales, recipe and swizzle of each, bias, out_dtype, ...)."""
    return _product(call, call.tensor(0), call.tensor(1), bias=call.optional(8) is not None, out_dtype=_out(call, 9))


def int_mm(call: Call) -> Operator:
    """aten::_int_mm(self, mat2): int8 times int8 in int32."""
    return _product(call, call.tensor(0), call.tensor(1), out_dtype="int32")


def grouped_mm(offsets: int, out_dtype: int) -> Callable[[Call], Operator]:
    """Return the mapping of aten::_grouped_mm(self, mat2, offs, bias, out_dtype) and of that with scales.

    Rows of one operand, or a part of k, belong to each group. A trace does not say which: groups of one size are
    assumed, and rows beyond a whole number for each are not counted.

    Parameters
    ----------
    offsets, out_dtype : positions of these arguments.
    """

    def build(call: Call) -> Operator:
        a, b, ends = call.tensor(0), call.tensor(1), call.optional(offsets)
        ranks = (len(a.dims), len(b.dims))
        out = _out(call, out_dtype)
        if ranks == (3, 3):
            return _product(call, a, b, out_dtype=out)
        if not {*ranks} <= {2, 3} or ends is None or a.dims[-1] != b.dims[-2]:
            raise NotModelledError(f"shapes {a.text()} and {b.text()} do not form groups of products")
        sizes: dict[str, Any] = {"m": a.dims[-2], "n": b.dims[-1], "k": a.dims[-1]}
        shared = {(2, 3): "m", (3, 2): "n", (2, 2): "k"}[ranks]
        groups = max(1, min(ends.numel, sizes[shared]))
        sizes[shared] //= groups
        return Gemm(**sizes, batch=groups, dtype=math_dtype(call, a), out_dtype=out)

    return build


def int4_weights(call: Call) -> Operator:
    """aten::_weight_int4pack_mm(self [m, k], mat2, qGroupSize, qScaleAndZeros [k / group, n, 2])."""
    a, scales, group = call.tensor(0), call.tensor(3), call.ints(2)
    if len(a.dims) != 2 or len(scales.dims) != 3 or len(group) != 1:
        raise NotModelledError("the trace does not say the sizes of its weights")
    sizes: dict[str, Any] = {"m": a.dims[0], "n": scales.dims[1], "k": a.dims[1]}
    return Gemm(**sizes, dtype=a.dtype, weight_dtype="int4", scale=f"group:{group[0]}")


def int8_weights(call: Call) -> Operator:
    """aten::_weight_int8pack_mm(self [m, k], mat2 [n, k], scales [n])."""
    a, weight = call.tensor(0), call.tensor(1)
    if len(a.dims) != 2 or len(weight.dims) != 2 or a.dims[1] != weight.dims[1]:
        raise NotModelledError(f"shapes {a.text()} and {weight.text()} do not form a product")
    sizes: dict[str, Any] = {"m": a.dims[0], "n": weight.dims[0], "k": a.dims[1]}
    return Gemm(**sizes, dtype=a.dtype, weight_dtype="int8", scale="column")


def triton_product(call: Call) -> Operator:
    """triton_tem_..._mm, ..._bmm, ..._addmm(tensors, ...), a product by a template of TorchInductor.

    Its tensors are what it adds, the two factors, what is fused behind it, and the result; it is the one product of two
    of them, in their order, that has the size of the last one.
    """
    tensors = [shape for shape in map(modelled, call.all_tensors()) if len(shape.dims) > 1]
    found = {
        (a.dims, b.dims): (a, b)
        for a, b in itertools.combinations(tensors[:-1], 2)
        if a.dims[-1] == b.dims[-2] and (*a.dims[:-1], b.dims[-1]) == tensors[-1].dims and a.dims[:-2] == b.dims[:-2]
    }
    if len(found) != 1:
        raise NotModelledError("its tensors do not say which of them it multiplies")
    return _product(call, *found.popitem()[1], out_dtype=tensors[-1].dtype)


def _out(call: Call, index: int) -> str:
    """Return the dtype of the result that an argument names by its number, or "" where it names none."""
    given = call.ints(index) if call.has_values else ()
    return _SCALAR_TYPES.get(given[0], "") if given else ""
