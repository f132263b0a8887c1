"""Kernels for the algorithms of a problem, as torch and numpy have them: what ``bench --algorithms`` measures.

One file for each problem of `perfmodel.prediction.algorithms`, with the same name, that has kernels:

    CONTEST = Contest("sort", sizes=(...), operator=..., inputs=..., kernels={"host_stable": ...}, check=...)
"""

from __future__ import annotations

import functools
import importlib
import pkgutil
from collections.abc import Mapping

from perfmodel.errors import UsageError, unknown_name
from perfmodel.kernels.algorithms.base import Contest

#: modules of this folder that hold no contest
HELPERS = ("base",)


@functools.cache
def contests() -> Mapping[str, Contest]:
    """Return every contest by the name of its problem."""
    names = sorted(module.name for module in pkgutil.iter_modules(__path__) if module.name not in HELPERS)
    return {name: importlib.import_module(f"{__name__}.{name}").CONTEST for name in names}


def find_contest(name: str) -> Contest:
    """Return the contest of a problem.

    Raises
    ------
    UsageError
        When no kernel of its algorithms is here, or the word is a size: each problem is measured over sizes of its own.
    """
    if "=" in name:
        names = " ".join(contests())
        raise UsageError(
            f"{name!r} is a size; bench --algorithms measures each problem over sizes of its own.",
            remedy=f"Name problems alone: {names}. `analyze --algorithms` predicts them at any size.",
        )
    word = name.replace("-", "_").lower()
    if word not in contests():
        raise unknown_name("problem with kernels", name, contests())
    return contests()[word]
