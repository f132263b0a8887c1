"""Help that is whole: names of options in narrow terminals, and purposes where Python has dropped its docstrings."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from typing import Any

import typer
from typer.core import TyperCommand

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
    widths = [0, 0, 0]
    for param in command.params:
        long, short = ([one for one in param.opts if one.startswith("--") is is_long] for is_long in (True, False))
        texts = (",".join(long), ",".join(short), str(param.metavar or ""))
        widths = [max(width, len(text)) for width, text in zip(widths, texts, strict=True)]
    opposites = (len(f"{name}.") for param in command.params for name in param.secondary_opts)
    explanations = max(*widths, *opposites)
    return shutil.get_terminal_size((_USUAL_WIDTH, 24)).columns >= _FRAME + sum(widths) + explanations


class _OppositesInWords(TyperCommand):
    """A command whose help names the opposite of a switch in its explanation.

    A box has a column of its own for them, as wide as the longest, so that two such names leave no room for boxes.
    """

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Write the help; the command does nothing else afterwards."""
        for param in self.params:
            if param.secondary_opts:
                opposites, param.secondary_opts = ", ".join(param.secondary_opts), []
                option: Any = param
                option.help = f"{option.help} The opposite: {opposites}."
        super().format_help(ctx, formatter)


def with_opposites_in_words(app: typer.Typer) -> typer.Typer:
    """Return a program whose help names opposites of switches in explanations, and not in a column of their own."""
    for one in app.registered_commands:
        one.cls = _OppositesInWords
    for group in app.registered_groups:
        if group.typer_instance is not None:
            with_opposites_in_words(group.typer_instance)
    return app


def with_purposes(app: typer.Typer) -> typer.Typer:
    """Return a program whose commands have the help of their docstrings, also where Python runs without them (-OO)."""
    for one in app.registered_commands:
        one.help = one.help or docstring(one.callback)
    for group in app.registered_groups:
        if group.typer_instance is not None:
            with_purposes(group.typer_instance)
    return app
