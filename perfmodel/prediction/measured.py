"""A time that somebody measured, against bound and expectation: a verdict, and the likely causes in order."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from perfmodel.core.hardware import Hardware
from perfmodel.core.report import Reportable
from perfmodel.core.units import format_si, try_quantity
from perfmodel.core.vocabulary import CacheState, Limiter, Load, Timing
from perfmodel.errors import UsageError
from perfmodel.operators.base import Operator
from perfmodel.operators.gemm import Gemm
from perfmodel.operators.memcpy import Memcpy
from perfmodel.prediction.bounds import boost_of
from perfmodel.prediction.padding import LOADED_BYTES, padded
from perfmodel.prediction.predict import floor_time, predict
from perfmodel.prediction.result import Prediction
from perfmodel.prediction.uncertainty import unmeasured

TOO_FAST = "faster than its bound"
FAST, AS_EXPECTED, SLOW = "faster than expected", "as expected", "slower than expected"
#: causes that are listed
_MOST_CAUSES = 4
#: another way of computing explains a time if it predicts it within this factor
_CLOSE = 1.35
#: views of the kernel alone
_OF_KERNELS = (Timing.KERNEL, Timing.GRAPH)
#: an expectation that nobody measured may itself be wrong by this factor beyond its interval: assumed
_WRONG = 2.0


@dataclass(frozen=True)
class Measured(Reportable):
    """A measured time of one operator on one machine, judged.

    Attributes
    ----------
    prediction : bound and expectation.
    measured_time_s : the time [s].
    verdict : faster than its bound, faster than expected, as expected, or slower than expected.
    causes : what may explain it, the likeliest first; empty for what is expected.
    """

    prediction: Prediction
    measured_time_s: float
    verdict: str
    causes: tuple[str, ...]

    @property
    def efficiency(self) -> float:
        """Bound over measured time."""
        return float(self.prediction.bound_time_s) / self.measured_time_s

    @property
    def sentence(self) -> str:
        """The verdict against bound, expectation and interval in one sentence."""
        p = self.prediction
        low, high = (format_si(float(end), "s", 3) for end in (p.predicted_time_low_s, p.predicted_time_high_s))
        share = (
            f"the bound is {_longer(self.efficiency)}"
            if self.verdict == TOO_FAST
            else f"{100 * self.efficiency:.3g} % of what the bound allows"
        )
        return (
            f"{p.label} on {p.hardware}: {format_si(self.measured_time_s, 's')} is {self.verdict}: "
            f"{_times(self.measured_time_s / float(p.predicted_time_s))} the expected "
            f"{format_si(float(p.predicted_time_s), 's')} ({low} to {high}), "
            f"{share}."
        )

    def rows(self) -> list[dict[str, Any]]:
        """Return the row of the prediction with the measured time, its rates, the efficiency and the verdict."""
        (row,) = self.prediction.rows()
        moved = row["bytes_read"] + row["bytes_written"]
        return [
            {
                **row,
                "measured_time_s": self.measured_time_s,
                "achieved_flop_per_s": row["flop"] / self.measured_time_s,
                "achieved_bytes_per_s": moved / self.measured_time_s,
                "efficiency": self.efficiency,
                "faster_than_bound": self.verdict == TOO_FAST,
                "verdict": self.verdict,
                "causes": list(self.causes),
            }
        ]


def _longer(factor: float) -> str:
    """Return by how much a time is longer than another: below a factor of two in per cent, which a factor rounds away.

    >>> _longer(1.012), _longer(441.3)
    ('1.2 % longer', '441 times as long')
    """
    return f"{100 * (factor - 1):.2g} % longer" if factor < 2 else f"{format_si(factor, '', 3)} times as long"


def measured_time(text: str, op: Operator, place: str = "--measured") -> float:
    """Return the time of one call [s] from a time or a rate: "14.5ms", "38TFLOP/s", "1.2TB/s".

    B/s of a copy or a collective are those over the link: for a collective the bus bandwidth of nccl-tests.

    Raises
    ------
    UsageError
        When it is none of them, not above 0, has no unit, or the operator does no work of that kind.
    """
    remedy = "Write a time or a rate of one call: 14.5ms, 38TFLOP/s, 1.2TB/s."
    if text.strip()[-1:].isdigit():
        raise UsageError(f"{text!r} has no unit.", place=place, remedy=remedy)
    work = op.work()
    moved = sum(op.link_traffic().values(), 0.0) or work.least_bytes
    for unit, amount in (("s", None), ("FLOP/s", work.flop), ("B/s", moved)):
        value = try_quantity(text, unit)
        if value is None:
            continue
        if not value > 0:
            raise UsageError(f"{text!r} is not above 0.", place=place, remedy=remedy)
        if amount is None:
            return value
        if not float(amount) > 0:
            raise UsageError(f"{op.op} has no {unit.partition('/')[0]} to count.", place=place, remedy=remedy)
        return float(amount) / value
    raise UsageError(f"{text!r} is neither a time nor a rate.", place=place, remedy=remedy)


def judge_measured(op: Operator, hardware: Hardware, time_s: float, **conditions: Any) -> Measured:
    """Return the verdict on a measured time of one call, with its likely causes.

    Parameters
    ----------
    op : the operator; scalar.
    hardware : the machine.
    time_s : the measured time [s].
    conditions : timing, cache, library and load, as for `perfmodel.prediction.predict.predict`.

    Raises
    ------
    UsageError
        When a dimension is an array, the time is not above 0, and as `predict`.
    """
    if any(np.ndim(value) for value in op.params().values()):
        raise UsageError("a measured time belongs to one size.", place=op.op, remedy="Give each dimension one value.")
    if not 0 < time_s < math.inf:
        raise UsageError(f"the measured time is {time_s} s.", place=op.op, remedy="It has to be above 0 and finite.")
    p = predict(op, hardware, **conditions)
    floor_s = float(floor_time(op, hardware, p.cache))
    if time_s < floor_s:
        verdict, causes = TOO_FAST, _too_fast(op, hardware, p, time_s)
    elif time_s < float(p.predicted_time_low_s):
        verdict, causes = FAST, _fast(op, hardware, p, time_s)
    elif time_s <= float(p.predicted_time_high_s):
        verdict, causes = AS_EXPECTED, iter(())
    else:
        verdict, causes = SLOW, _slow(op, hardware, p, time_s)
    return Measured(p, time_s, verdict, tuple(causes)[:_MOST_CAUSES])


def _too_fast(op: Operator, hardware: Hardware, p: Prediction, time_s: float) -> Iterator[str]:
    """Yield why a time may be below what the machine allows."""
    yield from _cached(op, hardware, p, time_s)
    if _expected_s(op, hardware, p, dtype="tf32") <= time_s * _CLOSE and op.dtype == "fp32":
        yield "the products are rounded to TF32: analyze with dtype=tf32"
    if time_s < float(p.bound_time_s) / 2:
        yield "the timer did not wait for the GPU: launches are asynchronous, so synchronise before reading the clock"
    flop, moved = format_si(float(p.flop), "FLOP"), format_si(float(p.work.least_bytes), "B")
    causal = "; a rate that counts what the mask hides is up to twice as high" if getattr(op, "causal", False) else ""
    yield f"less work than {flop} and {moved} a call: other sizes, or sparse data{causal}"
    yield f"another machine than {hardware.name}, or a figure of its specification that is too low"


def _cached(op: Operator, hardware: Hardware, p: Prediction, time_s: float) -> Iterator[str]:
    """Yield that the data lay in a cache, if that explains a time."""
    if p.cache == CacheState.COLD and float(floor_time(op, hardware, CacheState.WARM)) <= time_s:
        yield "its data lay in a cache: use other buffers for each call, or analyze with --cache warm"


def _fast(op: Operator, hardware: Hardware, p: Prediction, time_s: float) -> Iterator[str]:
    """Yield why a time may be below the interval of the expectation."""
    if _expected_s(op, hardware, p, cache=CacheState.WARM) <= time_s * _CLOSE:
        yield from _cached(op, hardware, p, time_s)
    if p.limiter == Limiter.COMPUTE and (boost := boost_of(hardware)) > 1.0:
        yield f"the board's clock: its driver allows {boost:.2f} times that of the printed peaks, which the bound has"
    if unknown := unmeasured(p.uncertainty):
        yield f"nobody measured this {unknown}: the expectation is the uncertain side"
    yield "a better kernel than those that were measured: another library or version, or a fused one"
    if p.load == Load.SUSTAINED:
        yield "a shorter load, at a higher clock: analyze with --load burst"


def _slow(op: Operator, hardware: Hardware, p: Prediction, time_s: float) -> Iterator[str]:
    """Yield why a time may be above the interval of the expectation."""
    queued_s = _expected_s(op, hardware, p, timing=Timing.DO_BENCH)
    if p.timing in _OF_KERNELS and queued_s > 1.1 * float(p.predicted_time_s) and time_s <= queued_s * _CLOSE:
        yield (
            f"the time includes the events around a single call ({format_si(queued_s, 's')} expected with --timing "
            "do-bench): time many calls between two events"
        )
    event_s = _expected_s(op, hardware, p, timing=Timing.EVENT)
    if not p.timing.includes_host and event_s > 1.1 * float(p.predicted_time_s) and time_s <= event_s * _CLOSE:
        yield (
            f"the time includes the host's dispatch ({format_si(event_s, 's')} expected with --timing event): time "
            "many calls between two events, or a CUDA graph"
        )
    vector = hardware.find_peak(op.dtype, "vector") or hardware.find_peak("fp32", "vector")
    if vector is not None and p.limiter == Limiter.COMPUTE and p.engine.startswith("tensor"):
        vector_s = float(p.flop) / hardware.vector_peak(op.dtype).flop_per_s
        if time_s >= vector_s / _CLOSE:
            yield f"the tensor cores are not used: the vector units alone need {format_si(vector_s, 's')} or more"
    odd = padded(op)[1] if isinstance(op, Gemm) and p.engine.startswith("tensor") else ""
    if odd:
        yield f"odd sizes: pad {odd}, since kernels of the tensor cores load {LOADED_BYTES} B at once"
    sustained_s = _expected_s(op, hardware, p, load=Load.SUSTAINED)
    if p.load == Load.BURST and sustained_s > 1.1 * float(p.predicted_time_s) and time_s <= sustained_s * _CLOSE:
        yield f"the power limit after minutes of load ({format_si(sustained_s, 's')} expected with --load sustained)"
    yield from _usual(op, p, time_s)


def _usual(op: Operator, p: Prediction, time_s: float) -> Iterator[str]:
    """Yield the causes of slow kernels that no prediction tells apart."""
    unknown = unmeasured(p.uncertainty)
    if unknown and time_s < _WRONG * float(p.predicted_time_high_s):
        yield f"nobody measured this {unknown}: the expectation may be wrong"
    if p.limiter not in (Limiter.COMPUTE, Limiter.LAUNCH, Limiter.LINK):
        passes = time_s / float(p.predicted_time_s)
        yield f"more traffic than the operator needs, {passes:.1f} times: strided access, casts, or several passes"
    elif p.limiter == Limiter.LINK:
        yield _slow_link(op)
    else:
        yield "another kernel than the library's best: its choice for the layout, or an old version"
    yield "the first calls (compilation, autotuning), other work on the GPU, or a lower clock (nvidia-smi -q -d CLOCK)"


def _slow_link(op: Operator) -> str:
    """Return why bytes may cross a link slowly: a copy between host and device has no ranks."""
    if not isinstance(op, Memcpy):
        return "ranks that wait for each other, or another path than the fastest link"
    pageable = "pageable memory (pinned=false), " if op.pinned else ""
    return f"{pageable}memory of another CPU than the GPU's, fewer lanes than the link has, or other copies over it"


def _expected_s(op: Operator, hardware: Hardware, p: Prediction, **changes: Any) -> float:
    """Return the expected time under other conditions or in another dtype [s]; infinite where there is none."""
    conditions = {"timing": p.timing, "cache": p.cache, "library": p.library, "load": p.load}
    dtype = changes.pop("dtype", None)
    try:
        other = replace(op, dtype=dtype) if dtype else op
        return float(predict(other, hardware, **{**conditions, **changes}).predicted_time_s)
    except UsageError:
        return math.inf


def _times(ratio: float) -> str:
    """Return a ratio with three digits, also where the last ones are 0.

    >>> _times(1.0), _times(26.34), _times(12345.0)
    ('1.00 times', '26.3 times', '12345 times')
    """
    return f"{ratio:#.3g} times" if 1e-3 < ratio < 99.5 else f"{format_si(ratio, '', 3)} times"
