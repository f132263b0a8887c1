"""Docstrings that people see as help, also where ``python -OO`` has dropped them."""

from __future__ import annotations

import ast
import inspect
import sys
import textwrap
from typing import Any


def docstring(thing: Any) -> str:
    """Return the docstring of a class or a function without its indentation; "" where it has none.

    Without docstrings it is read from the source, and a dataclass has its signature in their place.
    """
    if sys.flags.optimize < 2:
        return inspect.getdoc(thing) or ""
    try:
        parsed = ast.parse(textwrap.dedent(inspect.getsource(thing))).body[0]
    except (OSError, TypeError, SyntaxError):  # no source, as of a class that was made while the program runs
        return ""
    return (isinstance(parsed, ast.ClassDef | ast.FunctionDef) and ast.get_docstring(parsed)) or ""
