"""The rate of a call, B/s or FLOP/s: the one way in which a calibration times anything that has an amount."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from perfmodel.core.vocabulary import CacheState
from perfmodel.kernels.device import Device
from perfmodel.measure.calibration.plan import CalibrationPlan
from perfmodel.measure.calibration.waiting import share_waited, thread_times
from perfmodel.measure.timing.stopping_rule import StandardErrorRule
from perfmodel.measure.timing.timer import best_median_s, time_call

#: receives a line on what is being measured
Status = Callable[[str], None]

#: longest time for the samples of one median [s]
_MEDIAN_LIMIT_S = 1.0


@dataclass(frozen=True)
class Rate:
    """The rate of a call, B/s or FLOP/s.

    Attributes
    ----------
    sustained : by the best of several medians: what the machine sustains when nothing else disturbs it.
    fastest : by the fastest single sample.
    waited : share of the time for which the threads of a CPU were ready and had none.
    """

    sustained: float
    fastest: float
    waited: float = 0.0


def measured_rate(call: Callable[[], Any], amount: float, device: Device, plan: CalibrationPlan) -> Rate:
    """Return the rate of a call that moves ``amount`` bytes, or does as many FLOP.

    The calls are warm: their data is larger than the cache, or is meant to be in it.
    """
    rule = StandardErrorRule(0.0, plan.samples, plan.samples, time_limit_s=_MEDIAN_LIMIT_S)
    before = thread_times()
    timed = [time_call(call, device, rule, cache=CacheState.WARM) for _ in range(plan.rounds)]
    waited = share_waited(before, thread_times()) if device.kind == "cpu" else 0.0
    return Rate(amount / best_median_s(timed), amount / min(min(one.samples_s) for one in timed), waited)


def attempt(what: str, measure: Callable[[], Rate], left_out: list[str]) -> Rate | None:
    """Return what was measured; where that fails, None, and the reason is added to ``left_out``.

    A kernel that this version of a library does not compile, or for which memory is short, leaves the other figures
    unharmed.
    """
    try:
        return measure()
    except Exception as error:  # noqa: BLE001 -- whatever a library raises is the reason
        lines = str(error).strip().splitlines() or [""]
        left_out.append(f"{what}: {type(error).__name__}: {lines[-1][:200]}")
        return None


def rounded(value: float) -> float:
    """Return a value with four significant digits, which is all that a measurement has."""
    return float(f"{value:.4g}")
