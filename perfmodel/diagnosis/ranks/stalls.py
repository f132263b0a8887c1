"""When its exchanges keep a rank from computing.

An exchange that runs beside computation keeps nobody waiting, however long it waits itself. It does from when the rank
has nothing left to compute until its end. A rank that computes on before the exchange ends did not wait for it: its
host slept, or launches slowly, so that pauses between kernels are no waits either. Small work in a wait, as a copy or
the operators of a hook, does not end the wait.

So of all times from which on a rank may wait for an exchange, it is the one with the largest

    time without computation - 4 x time with computation

until the end of the exchange, and none where that is not above 0.
"""

from __future__ import annotations

import numpy as np

from perfmodel.diagnosis.intervals import covered_s, union
from perfmodel.profile.timeline import Floats

#: computation within a wait is small where it takes at most one in so many parts of what is idle before it
_SMALL = 4.0


def stalled(start_s: Floats, end_s: Floats, compute: Floats) -> Floats:
    """Return when exchanges keep a rank from computing: a union, shape (n, 2) [s].

    Parameters
    ----------
    start_s, end_s : of each exchange [s].
    compute : when the rank computes, a union [s].

    >>> stalled(np.array([0.0]), np.array([9.0]), np.array([[0.0, 2.0], [3.0, 6.0], [8.0, 8.1]])).tolist()
    [[6.0, 9.0]]
    """
    zero_s = compute[0, 0] if compute.size else 0.0
    ends = compute[:, 1] if compute.size else np.empty(0)
    low = np.searchsorted(ends, start_s, side="right")
    high = np.searchsorted(ends, end_s, side="left")
    # the time without computation less that with it from a moment on is one constant less than this, of the moment
    at_start, at_end, at_stop = (_against(compute, zero_s, times_s) for times_s in (start_s, end_s, ends))
    since_s = end_s.copy()
    for one in range(start_s.size):
        best, since = at_start[one], start_s[one]
        if high[one] > low[one]:
            stop = low[one] + int(np.argmax(at_stop[low[one] : high[one]]))
            if at_stop[stop] > best:
                best, since = at_stop[stop], ends[stop]
        if best > at_end[one]:
            since_s[one] = since
    return union(since_s, end_s)


def _against(compute: Floats, zero_s: float, times_s: Floats) -> Floats:
    """Return what was computed before each moment, with the weight that it has against a wait, less the moment [s]."""
    before_s = covered_s(compute, np.full(times_s.size, zero_s), times_s)
    return np.asarray((1.0 + _SMALL) * before_s - (times_s - zero_s))
