"""Sizes of matrix products that the tensor cores' kernels load in whole pieces."""

from __future__ import annotations

from perfmodel.core.dtypes import dtype_bytes
from perfmodel.operators.gemm import Gemm

#: bytes that one load moves to the tensor cores: rows have to be a multiple of it (NVIDIA, "Matrix multiplication
#: background user's guide", section 4.1: multiples of 16 B; 8 elements of 16 bits, 16 of 8 bits, 4 of TF32)
LOADED_BYTES = 16


def multiple_of(dtype: str) -> int:
    """Return the multiple that the rows of matrices have to be for whole loads [elements].

    >>> multiple_of("bf16"), multiple_of("fp8"), multiple_of("tf32")
    (8, 16, 4)
    """
    return max(1, int(LOADED_BYTES / dtype_bytes(dtype)))


def padded(op: Gemm) -> tuple[Gemm, str]:
    """Return a product with its row lengths n and k padded, and what is padded in words; empty if nothing has to be.

    The rows of A and B, or of its transpose, and of the result are k and n long; m only counts rows.
    """
    multiple = multiple_of(op.dtype)
    sizes = {name: float(getattr(op, name)) for name in ("n", "k")}
    new = {name: int(-(-size // multiple) * multiple) for name, size in sizes.items() if size % multiple}
    words = ", ".join(f"{name} {sizes[name]:.0f} to {size}" for name, size in new.items())
    return (op.changed(**new) if new else op), words
