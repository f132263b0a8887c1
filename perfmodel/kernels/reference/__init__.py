"""The float64 result of each operator: one file per operator with a function ``reference``, found by its name.

A plugin puts ``reference`` beside ``KERNELS`` in the module that its entry point in ``perfmodel.kernels`` names.
"""

from __future__ import annotations

import functools
import importlib
import pkgutil
from collections.abc import Callable, Mapping

import torch

from perfmodel.errors import UnavailableError
from perfmodel.kernels.reference.base import Reference, Selection, exact
from perfmodel.operators import Operator
from perfmodel.plugins import load_plugins

__all__ = ["Reference", "Selection", "exact", "find_reference"]

ReferenceFunction = Callable[[Operator, Mapping[str, torch.Tensor], Selection], Reference]
#: modules of this folder that are not references
HELPERS = ("base",)


@functools.cache
def find_reference(operator: str) -> ReferenceFunction:
    """Return the function that computes an operator in float64.

    Raises
    ------
    UnavailableError
        When neither perfmodel nor a plugin has one.
    """
    names = {module.name for module in pkgutil.iter_modules(__path__)} - set(HELPERS)
    own = [importlib.import_module(f"{__name__}.{operator}")] if operator in names else []
    for module in (*own, *load_plugins("kernels", operator)):
        function: ReferenceFunction | None = getattr(module, "reference", None)
        if function is not None:
            return function
    raise UnavailableError(
        f"there is no float64 reference for {operator}, so its kernels cannot be checked.",
        remedy=f"Add perfmodel/kernels/reference/{operator}.py, or a function 'reference' to the plugin's kernels.",
    )
