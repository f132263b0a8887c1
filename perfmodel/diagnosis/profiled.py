"""What a profiler would show for a predicted call: the kernel alone, without the gap that replayed graphs hold."""

from __future__ import annotations

from perfmodel.core.hardware import Hardware
from perfmodel.core.vocabulary import Calibration
from perfmodel.prediction.result import Prediction

#: share of the launch floor, the shortest share of a replayed graph, that is its gap: assumed, since no table has both,
#: with two open traces of an H100 in view: of 129 calls of elementwise kernels and layer norms below 4 us, 127 take 0.4
#: to 0.6 us less than by the tables, a sine and a cosine as long (floor 0.93 us; AMD-AGI/TraceLens @ 171dd74721ca)
GAP_OF_FLOOR = 0.5


def gap_time(hardware: Hardware) -> float:
    """Return the gap behind a kernel of a replayed graph, which tables of such times hold [s]; 0 where none is known.

    A time between events, or a share of a replayed graph, ends where the next kernel begins; a profiler's ends with the
    kernel.
    """
    return GAP_OF_FLOOR * (hardware.launch.floor_s or 0.0)


def profiled_time(prediction: Prediction, hardware: Hardware) -> float:
    """Return the expected time of one call as a profiler shows it [s].

    The gap of a replayed graph is taken off where the constants were fitted on the machine's own kernels, since those
    stood in such graphs. Other constants tell the start of a kernel less well than that: only the low end of their
    interval is without the gap (`perfmodel.diagnosis.limits`).
    """
    expected_s = float(prediction.predicted_time_s)
    if prediction.calibration != Calibration.CALIBRATED:
        return expected_s
    return max(expected_s - gap_time(hardware), min(expected_s, float(prediction.bound_time_s)))
