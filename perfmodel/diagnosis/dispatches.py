"""Which kernels of a trace begin after a pause that holds their dispatch, so that their times do not.

ROCm's profiler lets a kernel of a busy queue begin as the one before ends: its time holds its dispatch. Where the
kernel comes a little later, it begins once it is dispatched, and the dispatch stands as a pause before it. After a long
pause its time holds it again.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from perfmodel.core.hardware import Hardware
from perfmodel.core.units import format_si
from perfmodel.profile.profile import Profile
from perfmodel.profile.timeline import Floats, GpuEvents

#: the pauses that are a dispatch [s]. In two open traces of an MI300X 3,340 kernels follow the one before at once, 837
#: after 3.1 to 20 us, 3.4 in the median, and 30 later; 284, 21 and 9 of them are copies of up to 64 KiB, which take
#: 4.4, 1.6 and 5.4 us in the median (AMD-AGI/TraceLens @ 171dd74721ca)
DISPATCH_PAUSES_S = (1e-6, 20e-6)
#: share of the start of such a kernel that is its dispatch: 3.4 of 4.4 us
DISPATCH_OF_QUEUED = 0.77


def dispatched_outside(profile: Profile) -> Floats | None:
    """Return which share of each entry's kernels has its dispatch before it; None where no time line tells."""
    gpu = _counted(profile)
    if gpu is None:
        return None
    counted, entries = gpu.entry >= 0, len(profile.entries)
    number, all_of = (
        np.bincount(gpu.entry[some & counted], minlength=entries) for some in (_after_a_dispatch(gpu), counted)
    )
    return number / np.maximum(all_of, 1)


def dispatch_note(profile: Profile, hardware: Hardware | None) -> tuple[str, ...]:
    """Return a note on what dispatches take of the kernels' time, where the machine's profiler counts them there."""
    gpu = _counted(profile)
    if gpu is None or hardware is None or hardware.launch.queued_s is None:
        return ()
    counted = gpu.entry >= 0
    held = int(np.count_nonzero(counted & ~_after_a_dispatch(gpu)))
    dispatch_s = DISPATCH_OF_QUEUED * hardware.launch.queued_s
    return (
        f"{held} of {np.count_nonzero(counted)} pieces of GPU work hold their dispatch, {format_si(dispatch_s, 's')} "
        f"each: {format_si(held * dispatch_s, 's')} of their time go to starting them. Fewer, longer kernels save it.",
    )


def without_dispatch(
    expected_s: float, low_s: float, high_s: float, starting_s: float, outside: float | None
) -> tuple[float, float, float]:
    """Return an expected time with its interval, less the dispatches that stand before a call's kernels [s].

    Parameters
    ----------
    expected_s, low_s, high_s : time of a call whose kernels hold their dispatch, and its interval.
    starting_s : what of it starts kernels.
    outside : share of the kernels whose dispatch stands before them. Where it is None, nobody knows, and all may: the
        low end is without dispatch.
    """
    dispatch_s = DISPATCH_OF_QUEUED * starting_s
    if outside is None:
        return expected_s, min(low_s, expected_s - dispatch_s), high_s
    kept = 1.0 - outside * dispatch_s / expected_s
    return kept * expected_s, kept * low_s, kept * high_s


def _counted(profile: Profile) -> GpuEvents | None:
    """Return the work of the GPUs, where entries count it."""
    gpu = profile.timeline.gpu if profile.timeline else None
    return gpu if gpu is not None and gpu.entry.size else None


def _after_a_dispatch(gpu: GpuEvents) -> NDArray[np.bool_]:
    """Return which events begin after a pause of their stream that is a dispatch."""
    order = np.lexsort((gpu.start_s, gpu.stream, gpu.device))
    stream, device = gpu.stream[order], gpu.device[order]
    pause_s = gpu.start_s[order][1:] - gpu.end_s[order][:-1]
    shortest, longest = DISPATCH_PAUSES_S
    outside = np.zeros(len(gpu), bool)
    outside[order[1:]] = (
        (stream[1:] == stream[:-1]) & (device[1:] == device[:-1]) & (pause_s > shortest) & (pause_s < longest)
    )
    return outside
