"""Modules and inputs as text: "package.module:build", "8x1024:int64", "mask=8x1x1024x1024:bool"."""

from __future__ import annotations

import importlib
import os
import re
import sys
from collections.abc import Sequence
from typing import Any

import torch

from perfmodel.errors import PerfModelError, UsageError, unknown_name
from perfmodel.module_capture.failures import BUILD, NO_EXIT

DTYPES = {
    "fp32": torch.float32, "float32": torch.float32, "bf16": torch.bfloat16, "bfloat16": torch.bfloat16,
    "fp16": torch.float16, "float16": torch.float16, "fp64": torch.float64, "float64": torch.float64,
    "int64": torch.int64, "int32": torch.int32, "int8": torch.int8, "uint8": torch.uint8, "bool": torch.bool,
}  # fmt: skip
_INPUT = re.compile(r"(?:(?P<name>[A-Za-z_]\w*)=)?(?P<shape>\d+(?:x\d+)*|scalar)(?::(?P<dtype>\w+))?")
_LARGEST = 2**40


def load_target(text: str) -> Any:
    """Return what "package.module:name" or "file.py:name" names: a module, a class or a function that builds one.

    The current folder is searched first, as Python does for scripts; for a file in another one, its own folder.

    Raises
    ------
    UsageError
        When it cannot be imported.
    """
    place, _, name = text.rpartition(":")
    if not place or not name:
        raise UsageError(f"{text!r} names no module.", place="MODULE", remedy="Write package.module:build.")
    if not name.replace(".", "_").isidentifier():
        raise UsageError(f"{name!r} is no name.", place=text, remedy=BUILD)
    folder, module = os.getcwd(), os.path.normpath(place.removesuffix(".py"))
    if os.path.isabs(module) or module.startswith(os.pardir):
        folder, module = os.path.split(os.path.abspath(module))
    if folder not in sys.path:
        sys.path.insert(0, folder)
    try:
        value: Any = importlib.import_module(module.replace(os.sep, "."))
    except PerfModelError:
        raise
    except SystemExit as error:
        message = f"{place!r} ends the program while it is imported (exit code {error})."
        raise UsageError(message, place=text, remedy=NO_EXIT) from error
    except Exception as error:  # noqa: BLE001 -- a user's file may do anything
        message = next(iter(str(error).splitlines()), "")
        raise UsageError(
            f"cannot import {place!r}: {type(error).__name__}: {message.rstrip('.')}.",
            place=text,
            remedy="Write package.module:build, of a module that Python finds from this folder, or file.py:build.",
        ) from None
    for part in name.split("."):
        if not hasattr(value, part):
            names = [known for known in dir(value) if not known.startswith("_")]
            raise unknown_name("name", part, names, place=text, listing=f"dir({place})")
        value = getattr(value, part)
    return value


def parse_inputs(texts: Sequence[str], *, device: str = "meta") -> Any:
    """Return the arguments that some texts describe: a tuple, or a dictionary where they have names.

    Whole numbers are zeros, which every table of embeddings has; others are normal random numbers. On the meta device
    they have no values.

    Raises
    ------
    UsageError
        When a text is no shape, a dtype is unknown, a name occurs twice, or some inputs have names and others not.
    """
    named: dict[str, torch.Tensor] = {}
    plain: list[torch.Tensor] = []
    for text in texts:
        match = _INPUT.fullmatch(text.strip())
        if match is None:
            raise UsageError(
                f"{text!r} is no shape.",
                place="--input",
                remedy="Write 8x1024:int64, or mask=8x1024:bool for a keyword.",
            )
        tensor = _tensor(match["shape"], match["dtype"] or "fp32", device)
        if match["name"] in named:
            raise UsageError(f"{match['name']!r} is given twice.", place="--input", remedy="Give each keyword once.")
        if match["name"]:
            named[match["name"]] = tensor
        else:
            plain.append(tensor)
    if named and plain:
        raise UsageError("some inputs have names and others not.", place="--input", remedy="Name all of them or none.")
    return named or tuple(plain)


def _tensor(shape: str, dtype: str, device: str) -> torch.Tensor:
    if dtype not in DTYPES:
        raise unknown_name("dtype", dtype, DTYPES, place="--input")
    dims = () if shape == "scalar" else tuple(int(size) for size in shape.split("x"))
    kind = DTYPES[dtype]
    total = 1
    for size in dims:
        total *= size
    if not 0 < total <= _LARGEST:
        raise UsageError(f"{shape} has {total} elements.", place="--input", remedy="Give 1 to 2^40 of them.")
    if kind.is_floating_point and device != "meta":
        return torch.randn(dims, device=device).to(kind)
    return torch.zeros(dims, dtype=kind, device=device)
