"""The dtype in which a module is captured: that of its parameters, or that of its inputs where the two differ.

PyTorch refuses a product of two dtypes. On tensors without values it does not: it takes the dtype of the first one.
"""

from __future__ import annotations

from collections.abc import Iterable
from types import MappingProxyType

import torch

from perfmodel.errors import UsageError

#: dtypes of whole modules -> the model's names
MODULE_DTYPES = MappingProxyType(
    {torch.float32: "fp32", torch.bfloat16: "bf16", torch.float16: "fp16", torch.float64: "fp64"}
)


def casts_to_try(parameters: Iterable[torch.Tensor], inputs: Iterable[torch.Tensor]) -> tuple[torch.dtype | None, ...]:
    """Return the dtypes to cast a module to, in the order in which to try them; None leaves it as it is.

    An input in 16 bits is one of a model in 16 bits. An input in more bits than the parameters may be a mask, which
    PyTorch takes as it is: the module is cast only if it fails in its own dtype. Modules of several dtypes, and those
    in formats without ordinary products (fp8), are meant as they are.

    Parameters
    ----------
    parameters : of the module.
    inputs : all tensors that it is called with.

    Raises
    ------
    UsageError
        When the inputs have several floating-point dtypes, none of them that of the parameters.
    """
    own, given = _floats(parameters), _floats(inputs)
    if len(own) != 1 or not given or own & given or not own | given <= MODULE_DTYPES.keys():
        return (None,)
    (held,) = own
    if len(given) > 1:
        names = " and ".join(sorted(MODULE_DTYPES[dtype] for dtype in given))
        raise UsageError(
            f"the floating-point inputs are in {names}, and the parameters in {MODULE_DTYPES[held]}.",
            place="capture",
            remedy="Give them all one dtype, which the module is cast to.",
        )
    (wanted,) = given
    return (None, wanted) if torch.promote_types(held, wanted) == wanted else (wanted,)


def dtype_after(tensor: torch.Tensor, cast: torch.dtype | None) -> torch.dtype:
    """Return the dtype of a tensor after a cast, which concerns floating-point ones, as ``Module.to`` does it."""
    return cast if cast is not None and tensor.dtype.is_floating_point else tensor.dtype


def _floats(tensors: Iterable[torch.Tensor]) -> set[torch.dtype]:
    return {tensor.dtype for tensor in tensors if tensor.dtype.is_floating_point}
