"""Advice for an operator: stated rules over the limiter and the share of its ceiling that is reached.

A measured kernel can be tuned. An operator that nobody ran cannot: there the advice says what bounds it, and what would
change that.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from perfmodel.core.vocabulary import Limiter
from perfmodel.core.work import Number, Text, where

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
    "link": "link-bound: overlap the transfer with compute, or move fewer bytes",
    "pageable": "link-bound: pin host memory, overlap the copy with compute, or move fewer bytes",
}
#: the same rules for an operator that nobody ran
EXPECTED = {
    "launch": (
        "launch-bound: a launch costs as much time as the work, or as the work would with its data in a cache; "
        "batching calls, fusing kernels or a CUDA graph changes that"
    ),
    "memory, well used": (
        "memory-bound: bytes over bandwidth set the time; fusion with neighbours, a narrower dtype or data that stays "
        "in a cache changes that"
    ),
    "memory": (
        "memory-bound, expected below 75 % of bandwidth: larger sizes reach more of it; fusion with neighbours or a "
        "narrower dtype moves fewer bytes"
    ),
    "compute, poorly used": (
        "compute-bound, expected below 50 % of peak: whole tiles and waves (larger m n or batch) reach more of it; a "
        "narrower dtype or fewer FLOP changes the bound"
    ),
    "compute": "compute-bound: FLOP over the peak set the time; a narrower dtype or fewer FLOP changes that",
    "link": "link-bound: bytes over the link set the time; fewer bytes, or overlap with compute, changes that",
    "pageable": (
        "link-bound: bytes over the link set the time; pinned host memory, fewer bytes or overlap with compute changes "
        "that"
    ),
}
_NAMES = tuple(ADVICE)
_CODES = {name: index for index, name in enumerate(_NAMES)}


def advise(
    limiter: Text,
    bound_time_s: Number,
    time_s: Number,
    launch_s: float,
    resident_time_s: Number = np.nan,
    *,
    measured: bool = True,
    pageable: bool = False,
) -> Text:
    """Return the advice for a bound, and a time that was predicted or measured.

    The first of these rules that holds:

    - launch-bound, if the bound is the launch floor, or the launch overhead is over half of the time, or the data fits
      a cache and moves from there in less than the launch overhead;
    - link-bound, if a link is the limiter; a copy from pageable host memory can be pinned;
    - compute-bound, if compute is the limiter; poorly used below 50 % of the ceiling;
    - memory-bound; well used from 75 % of the ceiling.

    Parameters
    ----------
    limiter : the ceiling that sets the bound, a string or an array of strings.
    bound_time_s, time_s : the bound and the time [s], scalar or array of one shape.
    launch_s : launch overhead of the machine [s].
    resident_time_s : the bound with the data in a cache [s]; NaN where it does not fit one.
    measured : whether the operator ran; else the advice says what bounds it, and what would change that.
    pageable : whether it copies from or to pageable host memory.
    """
    texts, link = ADVICE if measured else EXPECTED, "pageable" if pageable else "link"
    share = np.divide(bound_time_s, time_s)
    launch = (limiter == Limiter.LAUNCH) | (time_s < 2 * launch_s) | (resident_time_s < launch_s)
    compute = where(share < COMPUTE_POORLY_USED, _CODES["compute, poorly used"], _CODES["compute"])
    memory = where(share >= MEMORY_WELL_USED, _CODES["memory, well used"], _CODES["memory"])
    inside = where(limiter == Limiter.COMPUTE, compute, memory)
    code: NDArray[np.intp] | int = where(launch, _CODES["launch"], where(limiter == Limiter.LINK, _CODES[link], inside))
    if isinstance(code, int) or code.ndim == 0:
        return texts[_NAMES[int(code)]]
    # An array of references: a sentence of 110 characters for each of a million points would take 440 MB.
    return np.asarray([texts[name] for name in _NAMES], dtype=object)[code]
