"""The profile that candidates are set against: the wall time of a traced run, so that shares are of elapsed time."""

from __future__ import annotations

import dataclasses

from perfmodel.core.hardware import Hardware
from perfmodel.diagnosis.diagnose import wall_time
from perfmodel.profile.profile import Profile

WALL_NOTE = (
    "Shares are of the wall time: gaps of the GPU are entries, and overlapping work counts once, so that an entry that "
    "others overlap all the time adds 0 s."
)


def baseline_profile(profile: Profile, hardware: Hardware | None = None) -> Profile:
    """Return what candidates are ranked on: the wall time of a traced run with all its entries, else the profile.

    Parameters
    ----------
    profile : any profile; one of a wall time comes back as it is.
    hardware : the machine that it was measured on, or None.
    """
    wall = wall_time(profile, hardware)
    return profile if wall is profile else with_overlapped_entries(wall, profile)


def with_overlapped_entries(wall: Profile, profile: Profile) -> Profile:
    """Return a profile of the wall time plus the entries that others overlap, at 0 s, so that a plan may name them."""
    shown = {entry.name for entry in wall.entries}
    overlapped = tuple(
        dataclasses.replace(entry, time_s=0.0, calls=None, op=None, flop=None, bytes=None)
        for entry in profile.entries
        if entry.name not in shown
    )
    return dataclasses.replace(wall, entries=(*wall.entries, *overlapped))
