"""Several operators on several machines: a machine that cannot run one of them does not hide the others."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, TypeVar

from perfmodel.cli._output import status
from perfmodel.errors import UsageError

if TYPE_CHECKING:
    from perfmodel.core.hardware import Hardware

What = TypeVar("What")
Found = TypeVar("Found")


def on_each(
    machines: Sequence[Hardware],
    asked: Sequence[What],
    found: Callable[[What, Hardware], Found],
    name: Callable[[What], str],
) -> list[tuple[Hardware, list[Found]]]:
    """Return what is found of each thing that is asked on each machine, without machines on which nothing is.

    A comparison of machines leaves out what one of them cannot run, with a line on stderr for each machine and reason.

    Parameters
    ----------
    machines : one or several.
    asked : what is asked on each of them.
    found : (thing, machine) -> the result.
    name : of a thing, for the message.

    Raises
    ------
    UsageError
        The first error, where there is one machine only, or nothing is found on any.
    """
    results: list[tuple[Hardware, list[Found]]] = []
    first: UsageError | None = None
    left_out: dict[tuple[str, str], list[str]] = {}
    for machine in machines:
        here: list[Found] = []
        for thing in asked:
            try:
                here.append(found(thing, machine))
            except UsageError as error:
                if len(machines) == 1:
                    raise
                first = first or error
                left_out.setdefault((machine.name, str(error)), []).append(name(thing))
        if here:
            results.append((machine, here))
    if first is not None and not results:
        raise first
    for (machine_name, reason), names in left_out.items():
        status(f"warning: {_listed(names)} on {machine_name} left out: {reason}")
    return results


def _listed(names: Iterable[str]) -> str:
    """Return names for a message, each once."""
    return ", ".join(dict.fromkeys(names))
