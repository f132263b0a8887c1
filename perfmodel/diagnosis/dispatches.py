"""Which kernels of a trace begin after a pause that holds their dispatch, so that their times do not.

ROCm's profiler lets a kernel of a busy queue begin as the one before ends: its time holds its dispatch. Where the
kernel comes a little later, it begins once it is dispatched, and the dispatch stands as a pause before it. After a long
pause its time holds it again.
"""

from __future__ import annotations

import numpy as np

from perfmodel.profile.profile import Profile
from perfmodel.profile.timeline import Floats

#: the pauses that are a dispatch [s]. In two open traces of an MI300X 3,340 kernels follow the one before at once, 827
#: after 3.4 to 20 us, and 18 later; copies of up to 64 KiB take 4.4, 1.6 and 5.4 us of them (AMD-AGI/TraceLens @
#: 171dd74721ca)
DISPATCH_PAUSES_S = (1e-6, 20e-6)


def dispatched_outside(profile: Profile) -> Floats | None:
    """Return which share of each entry's kernels has its dispatch before it; None where no time line tells."""
    gpu = profile.timeline.gpu if profile.timeline else None
    if gpu is None or not gpu.entry.size:
        return None
    order = np.lexsort((gpu.start_s, gpu.stream, gpu.device))
    stream, device, entry = gpu.stream[order], gpu.device[order], gpu.entry[order]
    pause_s = gpu.start_s[order][1:] - gpu.end_s[order][:-1]
    shortest, longest = DISPATCH_PAUSES_S
    outside = np.zeros(len(gpu), bool)
    outside[1:] = (stream[1:] == stream[:-1]) & (device[1:] == device[:-1])
    outside[1:] &= (pause_s > shortest) & (pause_s < longest)
    counted = entry >= 0
    number, all_of = (np.bincount(entry[some], minlength=len(profile.entries)) for some in (outside & counted, counted))
    return number / np.maximum(all_of, 1)
