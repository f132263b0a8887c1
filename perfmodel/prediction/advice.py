"""Advice for an operator: stated rules over the limiter and the share of its ceiling that is reached."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from perfmodel.core.vocabulary import Limiter
from perfmodel.core.work import Number, where
from perfmodel.prediction.result import Text

#: from this share of the bandwidth on, a memory-bound kernel has nothing left to tune
MEMORY_WELL_USED = 0.75
#: below this share of the peak, a compute-bound kernel has a fault that can be named
COMPUTE_POORLY_USED = 0.50

ADVICE = {
    "launch": "launch-bound: batch calls, fuse kernels, or replay them from a CUDA graph",
    "memory, well used": "memory-bound at >= 75 % of bandwidth: stop tuning this kernel, fuse it with its neighbours",
    "memory": "memory-bound below 75 % of bandwidth: check coalescing, vector loads, occupancy and extra passes",
    "compute, poorly used": (
        "compute-bound below 50 % of peak: check that tensor cores are used, tile and wave quantisation, "
        "alignment of m n k, clocks and power limit"
    ),
    "compute": "compute-bound: a lower-precision dtype or fewer FLOP gains more than tuning",
    "link": "link-bound: pin host memory, overlap the copy with compute, or move fewer bytes",
}
_NAMES = tuple(ADVICE)
_CODES = {name: index for index, name in enumerate(_NAMES)}


def advise(
    limiter: Text,
    bound_time_s: Number,
    time_s: Number,
    launch_s: float,
    resident_time_s: Number = np.nan,
) -> Text:
    """Return the advice for a bound, and a time that was predicted or measured.

    The first of these rules that holds:

    - launch-bound, if the bound is the launch floor, or the launch overhead is over half of the time, or the data fits
      a cache and moves from there in less than the launch overhead;
    - link-bound, if a link is the limiter;
    - compute-bound, if compute is the limiter; poorly used below 50 % of the ceiling;
    - memory-bound; well used from 75 % of the ceiling.

    Parameters
    ----------
    limiter : the ceiling that sets the bound, a string or an array of strings.
    bound_time_s, time_s : the bound and the time [s], scalar or array of one shape.
    launch_s : launch overhead of the machine [s].
    resident_time_s : the bound with the data in a cache [s]; NaN where it does not fit one.
    """
    share = np.divide(bound_time_s, time_s)
    launch = (limiter == Limiter.LAUNCH) | (time_s < 2 * launch_s) | (resident_time_s < launch_s)
    compute = where(share < COMPUTE_POORLY_USED, _CODES["compute, poorly used"], _CODES["compute"])
    memory = where(share >= MEMORY_WELL_USED, _CODES["memory, well used"], _CODES["memory"])
    inside = where(limiter == Limiter.COMPUTE, compute, memory)
    code: NDArray[np.intp] | int = where(
        launch, _CODES["launch"], where(limiter == Limiter.LINK, _CODES["link"], inside)
    )
    if isinstance(code, int) or code.ndim == 0:
        return ADVICE[_NAMES[int(code)]]
    # An array of references: a sentence of 110 characters for each of a million points would take 440 MB.
    return np.asarray([ADVICE[name] for name in _NAMES], dtype=object)[code]
