"""Group normalisation: one block of threads per group, which reads it for its statistics and then again.

Nothing is fitted: the constants have the defaults of kernels that stream. A latency family for an operator without
fitted rows predicts with a wide interval.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from perfmodel.core.dtypes import dtype_bytes
from perfmodel.prediction.conditions import Conditions
from perfmodel.prediction.latency.family import Family, Values
from perfmodel.prediction.latency.machine import Machine
from perfmodel.prediction.latency.streams import ETA, FEED, FILL, START, missed_share, resident_blocks, stream_times
from perfmodel.prediction.latency.terms import HBM, L2, LAUNCH, Terms

#: family -> operators that it serves
SERVES = {"channel_norm": ("channel_norm",)}

#: threads of a block
THREADS = 512.0


def formula(op: Any, machine: Machine, c: Values, conditions: Conditions) -> Terms:
    """Return the terms of t = launch + hbm + l2 [s]; the share of the second read that misses L2 is read again."""
    work = op.work()
    groups = op.n * op.groups
    group_bytes = op.c / op.groups * op.spatial * dtype_bytes(op.dtype)
    missed = missed_share(np.minimum(groups, resident_blocks(machine, THREADS)) * group_bytes, machine, c)
    traffic = work.bytes + missed * groups * group_bytes
    hbm, l2 = stream_times(traffic, work.working_set_bytes, machine, c, conditions)
    return Terms({HBM: hbm, L2: l2, LAUNCH: c["launch"]}, {HBM: hbm, L2: l2})


FAMILIES = (Family("channel_norm", (ETA, START, FEED, FILL), formula, (HBM, L2, LAUNCH), streams=True),)
