"""Docstrings of perfmodel for mkdocstrings: one-line entries become numpy's two lines.

perfmodel writes ``name : meaning`` where numpydoc writes ``name : type`` with the meaning below. Types stand in the
signatures, so that the reader of numpy's style would take each meaning for a type.
"""

from __future__ import annotations

import re
from typing import Any

import griffe

_SECTIONS = ("Parameters", "Attributes")
_RULE = re.compile(r"-{3,}$")
_ENTRY = re.compile(r"(\S[^:]*?) : (.*)$")


class OneLineEntries(griffe.Extension):
    """Rewrite the docstrings of all objects when they are loaded."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        """Rewrite the docstring of one object."""
        if obj.docstring is not None:
            obj.docstring.value = two_lines(obj.docstring.value)


def two_lines(docstring: str) -> str:
    r"""Return a docstring with each ``name : meaning`` of a section as numpy's style wants it.

    >>> two_lines("Add.\n\nParameters\n----------\na, b : what is added,\n    both.\n")
    'Add.\n\nParameters\n----------\na, b\n    what is added,\n    both.\n'
    """
    lines: list[str] = []
    inside = False
    for line in docstring.split("\n"):
        if _RULE.match(line) and lines:
            inside = lines[-1] in _SECTIONS
        entry = _ENTRY.match(line) if inside else None
        lines += [entry.group(1), f"    {entry.group(2)}"] if entry else [line]
    return "\n".join(lines)
