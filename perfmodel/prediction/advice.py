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
#: traffic that takes this many times as long as the operator's bytes at the datasheet's bandwidth moves some of them
#: again: of the 82 shares of the bandwidth that are fitted (`hardware_specs`) 76 are above 0.6, and the others are of
#: convolutions, of products with scales of blocks and of a decode
MOVED_AGAIN = 1.6

ADVICE = {
    "launch": "launch-bound: batch calls, fuse kernels, or replay them from a CUDA graph",
    "launch, by latency": (
        "little work, which takes longer than its launch: latencies and idle SMs set the time; batch calls, fuse it "
        "with its neighbours, or split rows and sums among more blocks; a CUDA graph gains little"
    ),
    "launch, in a cache": (
        "launch-bound with its data in a cache, memory-bound without: fuse it with its neighbours, batch calls, or "
        "replay them from a CUDA graph"
    ),
    "memory, well used": "memory-bound at >= 75 % of bandwidth: stop tuning this kernel, fuse it with its neighbours",
    "memory": "memory-bound below 75 % of bandwidth: check coalescing, vector loads, occupancy and extra passes",
    "memory, moved again": (
        "memory-bound below 75 % of bandwidth, as expected of kernels that move bytes more than once: fewer passes or "
        "fusion gain more than tuning"
    ),
    "memory, by arithmetic": (
        "memory-bound below 75 % of bandwidth, as expected where the kernel's arithmetic takes longer than its bytes: "
        "check tiles, waves and instructions an element"
    ),
    "compute, poorly used": (
        "compute-bound below 50 % of peak: check that tensor cores are used, tile and wave quantisation, "
        "alignment of m n k, clocks and power limit"
    ),
    "compute, by traffic": (
        "compute-bound below 50 % of peak, as expected where the kernel's traffic takes longer than its FLOP: larger "
        "tiles, fusion or data that stays in a cache gain more than a faster engine"
    ),
    "compute": "compute-bound: a lower-precision dtype or fewer FLOP gains more than tuning",
    "link": "link-bound: overlap the transfer with compute, or move fewer bytes",
    "pageable": "link-bound: pin host memory, overlap the copy with compute, or move fewer bytes",
}
#: the same rules for an operator that nobody ran
EXPECTED = {
    "launch": (
        "launch-bound: a launch costs as much time as the work; batching calls, fusing kernels or a CUDA graph changes "
        "that"
    ),
    "launch, by latency": (
        "little work, but expected to take longer than its launch: latencies and idle SMs set the time; batching "
        "calls, fusing kernels or splitting rows and sums among more blocks changes that, a CUDA graph alone does not"
    ),
    "launch, in a cache": (
        "launch-bound with its data in a cache, memory-bound without: fusion with neighbours changes both, batching "
        "calls or a CUDA graph the first"
    ),
    "memory, well used": (
        "memory-bound: bytes over bandwidth set the time; fusion with neighbours, a narrower dtype or data that stays "
        "in a cache changes that"
    ),
    "memory": (
        "memory-bound, expected below 75 % of bandwidth: larger sizes reach more of it; fusion with neighbours or a "
        "narrower dtype moves fewer bytes"
    ),
    "memory, moved again": (
        "memory-bound, expected to move bytes more than once: an algorithm of fewer passes, fusion or a narrower dtype "
        "moves fewer"
    ),
    "memory, by arithmetic": (
        "memory-bound, but its arithmetic is expected to take longer than its bytes: whole tiles and waves, another "
        "algorithm or fewer instructions an element change that, a narrower dtype alone may not"
    ),
    "compute, poorly used": (
        "compute-bound, expected below 50 % of peak: whole tiles and waves (larger m n or batch) reach more of it; a "
        "narrower dtype or fewer FLOP changes the bound"
    ),
    "compute, by traffic": (
        "compute-bound, but its traffic is expected to take longer than its FLOP: larger sizes, fusion or data that "
        "stays in a cache change that, a faster engine does not"
    ),
    "compute": "compute-bound: FLOP over the peak set the time; a narrower dtype or fewer FLOP changes that",
    "link": "link-bound: bytes over the link set the time; fewer bytes, or overlap with compute, changes that",
    "pageable": (
        "link-bound: bytes over the link set the time; pinned host memory, fewer bytes or overlap with compute changes "
        "that"
    ),
}
#: limiters whose time is that of moving bytes
_TRAFFIC = [
    str(one)
    for one in Limiter
    if one not in {Limiter.COMPUTE, Limiter.LINK, Limiter.LAUNCH, Limiter.HOST, Limiter.UNKNOWN}
]
_NAMES = tuple(ADVICE)
_CODES = {name: index for index, name in enumerate(_NAMES)}


def advise(
    limiter: Text,
    bound_time_s: Number,
    time_s: Number,
    launch_s: float,
    resident_time_s: Number = np.nan,
    *,
    spent_on: Text = Limiter.UNKNOWN,
    moving_s: Number = 0.0,
    measured: bool = True,
    pageable: bool = False,
) -> Text:
    """Return the advice for a bound, and a time that was predicted or measured.

    The first of these rules that holds:

    - launch-bound, if the launch overhead is over half of the time, or the bound is the launch floor, unless the
      prediction spends most of a longer time on arithmetic or traffic, as a norm of few rows on few SMs does;
    - launch-bound with the data in a cache, if memory is the limiter, the data fits a cache and moves from there in
      less than the launch overhead, and this is over half of what then remains of the time: all but the traffic to the
      memory;
    - link-bound, if a link is the limiter; a copy from pageable host memory can be pinned;
    - compute-bound, if compute is the limiter; poorly used below 50 % of the ceiling, where the prediction may spend
      most of the time on traffic;
    - memory-bound; well used from 75 % of the ceiling. Below that the prediction may spend most of the time on
      arithmetic, or move the bytes more than once.

    Parameters
    ----------
    limiter : the ceiling that sets the bound, a string or an array of strings.
    bound_time_s, time_s : the bound and the time [s], scalar or array of one shape.
    launch_s : launch overhead of the machine [s].
    resident_time_s : the bound with the data in a cache [s]; NaN where it does not fit one.
    spent_on : the limiter that takes most of the predicted time; UNKNOWN where nothing is predicted.
    moving_s : what of the predicted time traffic to the memory takes [s].
    measured : whether the operator ran; else the advice says what bounds it, and what would change that.
    pageable : whether it copies from or to pageable host memory.
    """
    texts, link = ADVICE if measured else EXPECTED, "pageable" if pageable else "link"
    share = np.divide(bound_time_s, time_s)
    short = time_s < 2 * launch_s
    at_floor = limiter == Limiter.LAUNCH
    working = (spent_on == Limiter.COMPUTE) | np.isin(spent_on, _TRAFFIC)
    longer = where(working, _CODES["launch, by latency"], _CODES["launch"])
    # A kernel that computes for long, as a norm does over few long rows, is no faster with its data in a cache.
    remains = np.subtract(time_s, moving_s) < 2 * launch_s
    cached = (resident_time_s < launch_s) & remains & (limiter != Limiter.COMPUTE)
    poor = where(np.isin(spent_on, _TRAFFIC), _CODES["compute, by traffic"], _CODES["compute, poorly used"])
    compute = where(share < COMPUTE_POORLY_USED, poor, _CODES["compute"])
    again = where(moving_s > MOVED_AGAIN * bound_time_s, _CODES["memory, moved again"], _CODES["memory"])
    below = where(spent_on == Limiter.COMPUTE, _CODES["memory, by arithmetic"], again)
    memory = where(share >= MEMORY_WELL_USED, _CODES["memory, well used"], below)
    inside = where(limiter == Limiter.COMPUTE, compute, memory)
    resident = where(cached, _CODES["launch, in a cache"], where(limiter == Limiter.LINK, _CODES[link], inside))
    code: NDArray[np.intp] | int = where(short, _CODES["launch"], where(at_floor, longer, resident))
    if isinstance(code, int) or code.ndim == 0:
        return texts[_NAMES[int(code)]]
    # An array of references: a sentence of 110 characters for each of a million points would take 440 MB.
    return np.asarray([texts[name] for name in _NAMES], dtype=object)[code]
