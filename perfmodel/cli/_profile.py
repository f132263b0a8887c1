"""The machine that a profile was recorded on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from perfmodel.cli._options import only_machine
from perfmodel.cli._output import status

if TYPE_CHECKING:
    from perfmodel.core.hardware import Hardware
    from perfmodel.profile.profile import Profile


def profiled_machine(
    profile: Profile, on: Sequence[str] | None, *, option: str = "--on"
) -> tuple[Hardware | None, str]:
    """Return the machine to compare with and the source of its name; report both on stderr."""
    from perfmodel.hardware_catalog import hardware
    from perfmodel.hardware_catalog.find import match_device, suggestion

    if named := only_machine(on):
        return hardware(named), option
    if not profile.device:
        status("the profile names no device: pass --on HW for bounds, predictions and fusion advice.")
        return None, ""
    match = match_device(profile.device)
    if match is None:
        advice = suggestion(profile.device)
        status(
            f"the catalog has no {profile.device!r}{f'. {advice}' if advice else ''}: pass --on HW for bounds, "
            "predictions and fusion advice."
        )
        return None, ""
    status(f"comparing with {match.hardware.name}, the profile's device {profile.device!r} (--on overrides).")
    return match.hardware, f"the profile's device, {profile.device!r}"
