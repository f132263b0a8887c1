"""Help that is whole: names of options in narrow terminals, and purposes where Python has dropped its docstrings."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from typing import Any

import typer

from perfmodel.core.docstrings import docstring

#: what borders and the gaps between five columns take of a line [characters]
_FRAME = 14
#: where neither COLUMNS nor a terminal says how long a line is [characters]
_USUAL_WIDTH = 80


def fits_boxes(app: typer.Typer, arguments: Sequence[str]) -> bool:
    """Return whether the boxes of a command's help have room for the names of its options.

    The columns of a box are made narrower from the widest on. So names are whole as long as that of the explanations,
    which can be wrapped, is no narrower than the widest of them.
    """
    command: Any = typer.main.get_command(app)
    for word in arguments:
        command = getattr(command, "commands", {}).get(word, command)
    widths = [0, 0, 0, 0]
    for param in command.params:
        options = [[one for one in names if one.startswith("--")] for names in (param.opts, param.secondary_opts)]
        short = [one for one in param.opts if not one.startswith("--")]
        texts = (*map(",".join, options), ",".join(short), str(param.metavar or ""))
        widths = [max(width, len(text)) for width, text in zip(widths, texts, strict=True)]
    return shutil.get_terminal_size((_USUAL_WIDTH, 24)).columns >= _FRAME + sum(widths) + max(widths)


def with_purposes(app: typer.Typer) -> typer.Typer:
    """Return a program whose commands have the help of their docstrings, also where Python runs without them (-OO)."""
    for one in app.registered_commands:
        one.help = one.help or docstring(one.callback)
    for group in app.registered_groups:
        if group.typer_instance is not None:
            with_purposes(group.typer_instance)
    return app
