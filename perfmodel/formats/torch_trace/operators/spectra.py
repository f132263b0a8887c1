"""Maps calls on complex numbers to operators of the model: Fourier transforms, products, magnitudes.

Each function takes a `Call` and returns the operator, or raises `NotModelledError` with the reason. The order of the
arguments is that of PyTorch's native_functions.yaml.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from perfmodel.formats.torch_trace.call import COMPLEX, Call, NotModelledError, Shape, part_of
from perfmodel.operators import Operator
from perfmodel.operators.elementwise import Elementwise
from perfmodel.operators.fft import Fft
from perfmodel.operators.gemm import Gemm


def numbers(call: Call, index: int) -> Shape:
    """Return an argument that has to be a tensor with elements, of complex numbers or of real ones.

    Raises
    ------
    NotModelledError
        When it is none.
    """
    x = call.argument(index)
    if not isinstance(x, Shape) or not part_of(x):
        return call.tensor(index)
    if x.numel < 1:
        raise NotModelledError("a tensor has no elements")
    return x


def fft(kind: str) -> Callable[[Call], Operator]:
    """Return the mapping of aten::_fft_c2c(self, dim, ...), aten::_fft_r2c and aten::_fft_c2r(self, dim, _, last_size).

    A transform of real numbers that writes both halves of its result is counted with one of them.
    """

    def build(call: Call) -> Operator:
        x, axes = numbers(call, 0), call.ints(1)
        if not axes or any(not -len(x.dims) <= axis < len(x.dims) for axis in axes):
            raise NotModelledError("the trace does not say the axes of the transform")
        sizes = [x.dims[axis] for axis in axes]
        if kind == "inverse_real":
            last = call.ints(3)
            if len(last) != 1 or last[0] < 1:
                raise NotModelledError("the trace does not say the size of its result")
            batch, sizes = math.prod(x.dims) // math.prod(sizes), [*sizes[:-1], last[0]]
        else:
            batch = x.numel // math.prod(sizes)
        dtype = part_of(x) or x.dtype
        if dtype not in COMPLEX.values():
            raise NotModelledError(f"the dtype is {x.dtype}")
        n, others = sizes[-1], math.prod(sizes[:-1])
        return Fft(batch=batch, n=n, others=others, axes=len(sizes), kind=kind, dtype=dtype)

    return build


def product(call: Call) -> Operator:
    """aten::mm(self, mat2), aten::bmm(self, mat2) of complex numbers as a product of their parts: 8 m n k FLOP.

    The smaller operand counts as the matrix of its parts [[Re, -Im], [Im, Re]], which has twice its elements.
    """
    a, b = numbers(call, 0), numbers(call, 1)
    if len(a.dims) < 2 or len(b.dims) < 2 or a.dims[-1] != b.dims[-2]:
        raise NotModelledError("its shapes do not form a product")
    m, k, n, batch = a.dims[-2], a.dims[-1], b.dims[-1], math.prod(a.dims[:-2])
    m, n = (2 * m, n) if m <= n else (m, 2 * n)
    return Gemm(batch=batch, m=m, n=n, k=2 * k, dtype=part_of(a) or part_of(b))


def magnitude(call: Call) -> Operator:
    """aten::abs(self), aten::angle(self) of complex numbers: reads both parts, and writes a number."""
    x = numbers(call, 0)
    return Elementwise(numel=x.numel, kind="pow", num_inputs=2, dtype=part_of(x) or x.dtype)


def joined_parts(call: Call) -> Operator:
    """aten::complex(real, imag): reads and writes both parts."""
    return Elementwise(numel=2 * call.tensor(0).numel, kind="copy", dtype=call.tensor(0).dtype)
