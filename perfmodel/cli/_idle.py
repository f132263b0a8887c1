"""Options of a command that would have no effect beside others: each is refused with one message."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

import typer

from perfmodel.errors import UsageError


class Idle(NamedTuple):
    """Parameters of a command that have no effect under some condition.

    Attributes
    ----------
    when : whether the condition holds.
    names : the parameters, by their names in the command's function.
    reason : why they have no effect, a clause.
    remedy : what to do, a sentence.
    """

    when: bool
    names: tuple[str, ...]
    reason: str
    remedy: str = "Leave out one of them."


def given(command: typer.Context, names: Iterable[str]) -> list[str]:
    """Return the parameters that stand on the command line, also with their default, as they are written there."""
    chosen = {parameter.name: parameter for parameter in command.command.params}
    return [_written(chosen[name]) for name in names if _stands(command, chosen[name])]


def _stands(command: typer.Context, parameter: Any) -> bool:
    source = command.get_parameter_source(str(parameter.name))
    if source is None or source.name != "COMMANDLINE":
        return False
    # an argument of any number of words counts as given without one
    return parameter.param_type_name == "option" or bool(command.params.get(str(parameter.name)))


def _written(parameter: Any) -> str:
    """Return how a parameter is written: --length-spread, OPS."""
    if parameter.param_type_name == "option":
        return str(max(parameter.opts, key=len))
    return str(parameter.metavar or parameter.name).strip("[]-. ")


def refuse(command: typer.Context, names: Iterable[str], reason: str, remedy: str) -> None:
    """Raise a UsageError if a parameter is given that has no effect."""
    found = given(command, names)
    if found:
        verb = "has" if len(found) == 1 else "have"
        listed = f"{', '.join(found[:-1])} and {found[-1]}" if len(found) > 1 else found[0]
        raise UsageError(f"{listed} {verb} no effect: {reason}.", remedy=remedy)


def refuse_idle(command: typer.Context, table: Iterable[Idle]) -> None:
    """Raise a UsageError for the first line of a table whose condition holds and of which a parameter is given."""
    for when, names, reason, remedy in table:
        if when:
            refuse(command, names, reason, remedy)


def of_several(is_job: bool) -> Idle:
    """Return the line for what shares the work of a job's ranks: one profile is read by one process."""
    return Idle(
        not is_job, ("workers", "scheduler"), "one profile is read by one process",
        "Leave it out, or give the traces of a job.",
    )  # fmt: skip
