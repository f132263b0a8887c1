"""What is wrong with a value of an option that is no number, or none of those allowed, in the words of all messages."""

from __future__ import annotations

from typing import Any

import typer

#: kinds of faults that the parser of the command line tells apart -> what they mean, and the key of the limit
_WHOLE, _NUMBER = "is not a whole number", "is not a number"
_KINDS = {
    "int_parsing": (_WHOLE, ""), "int_from_float": (_WHOLE, ""), "int_parsing_size": (_WHOLE, ""),
    "float_parsing": (_NUMBER, ""), "finite_number": ("is not a finite number", ""),
    "greater_than_equal": ("is below", "ge"), "greater_than": ("is not above", "gt"),
    "less_than_equal": ("is above", "le"), "less_than": ("is not below", "lt"),
}  # fmt: skip


def unfit_value(error: typer.TyperException) -> str:
    """Return what is wrong with the value of an option, "--seed: 'x' is not a whole number"; "" for another error.

    The parser's own message names neither the value nor, of a number out of range, the side on which it lies.
    """
    faults, option = getattr(error.__cause__, "errors", None), getattr(error, "param", None)
    found: list[dict[str, Any]] = list(faults()) if callable(faults) else []
    if len(found) != 1 or option is None or found[0].get("type") not in _KINDS:
        return ""
    what, key = _KINDS[found[0]["type"]]
    limit = f" {found[0]['ctx'][key]:.12g}" if key else ""
    return f"{max(option.opts, key=len)}: {str(found[0].get('input'))!r} {what}{limit}"
