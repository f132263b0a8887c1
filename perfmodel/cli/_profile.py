"""What the commands that take a profile share: its options, and the machine that it was measured on."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from perfmodel.cli._common import status

if TYPE_CHECKING:
    from perfmodel.core.hardware import Hardware
    from perfmodel.profile.profile import Profile

ProfileArgument = Annotated[
    Path,
    typer.Argument(
        metavar="PROFILE",
        help="A trace, an export of nsys, ncu or nvprof, key_averages, or a table with a name, a time with its "
        "unit (time_ms, 'Time (ns)', or cells like '12 ms') and optionally calls.",
    ),
]
ByOption = Annotated[str, typer.Option("--by", metavar="GROUPING", help="Entries of a trace: shape, op or kernel.")]
AllOption = Annotated[
    bool, typer.Option("--all", help="Of a trace, count what ran outside the profiler's steps too (torch.profiler).")
]
MachineOption = Annotated[
    str | None,
    typer.Option(
        "--on",
        metavar="HW",
        help="Machine that was profiled: a catalog name, alias or spec file; default: what the profile names.",
        show_default=False,
    ),
]


def profiled_machine(measured: Profile, on: str | None) -> tuple[Hardware | None, str]:
    """Return the machine to compare with, and how it was found; say on stderr what was taken, or is missing."""
    from perfmodel.hardware_catalog import hardware
    from perfmodel.hardware_catalog.find import match_device

    if on:
        return hardware(on), "--on"
    if not measured.device:
        status("the profile names no device; without --on no bounds, predictions and fusions are worked out.")
        return None, ""
    match = match_device(measured.device)
    if match is None:
        status(f"the catalog has no {measured.device!r}; name the machine with --on to get bounds and predictions.")
        return None, ""
    status(f"comparing with {match.hardware.name}, which the profile names as {measured.device!r}; --on names another.")
    return match.hardware, f"the profile's device, {measured.device!r}"
