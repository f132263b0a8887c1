"""Docstrings of perfmodel for mkdocstrings: sections in numpy's two lines, lists as Markdown, examples.

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
_EXAMPLE = re.compile(r"^>>> ", re.MULTILINE)
_LIST = re.compile(r"^(?![- \n])(.*\S)\n(?=- )", re.MULTILINE)


class PlainDocstrings(griffe.Extension):
    """Rewrite the docstrings of all objects when they are loaded."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        """Rewrite the docstring of one object."""
        if obj.docstring is not None:
            obj.docstring.value = rewritten(obj.docstring.value)


def rewritten(docstring: str) -> str:
    r"""Return a docstring as mkdocstrings understands it: its examples are a section, too.

    >>> rewritten("Add.\n\nParameters\n----------\na, b : what is added,\n    both.\n\n>>> 1 + 1\n2\n")
    'Add.\n\nParameters\n----------\na, b\n    what is added,\n    both.\n\nExamples\n--------\n>>> 1 + 1\n2\n'
    """
    lists = _LIST.sub(r"\1\n\n", _two_lines(docstring))
    return _EXAMPLE.sub("Examples\n--------\n>>> ", lists, count=1)


def _two_lines(docstring: str) -> str:
    """Return a docstring with each ``name : meaning`` of a section on two lines."""
    lines: list[str] = []
    inside = False
    for line in docstring.split("\n"):
        if _RULE.match(line) and lines:
            inside = lines[-1] in _SECTIONS
        entry = _ENTRY.match(line) if inside else None
        lines += [entry.group(1), f"    {entry.group(2)}"] if entry else [line]
    return "\n".join(lines)
