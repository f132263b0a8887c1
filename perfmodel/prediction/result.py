"""The result for one operator on one machine: bound and prediction, side by side."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

import numpy as np

from perfmodel.core import roofline
from perfmodel.core.hardware import Hardware, Peak
from perfmodel.core.record import record
from perfmodel.core.report import Reportable
from perfmodel.core.units import format_si
from perfmodel.core.vocabulary import CacheState, Limiter, Load, Timing
from perfmodel.core.work import Number, Text, Work, plain
from perfmodel.operators.base import Operator
from perfmodel.operators.collective import Collective
from perfmodel.prediction.advice import advise
from perfmodel.prediction.bounds import bounding_times, resident, ridge_point, share_of_peak
from perfmodel.prediction.ceilings import launch_time, link_traffic
from perfmodel.prediction.conditions import Conditions
from perfmodel.prediction.copies import work_on
from perfmodel.prediction.implementations import named
from perfmodel.prediction.latency.estimate import Estimate
from perfmodel.prediction.point_rows import PLAIN_KEYS, ROW_KEYS, point_rows
from perfmodel.prediction.uncertainty import Uncertainty

__all__ = ["ROW_KEYS", "Prediction"]

#: the times that a prediction states
_TIMES = ("bound_time_s", "predicted_time_s", "predicted_time_low_s", "predicted_time_high_s")


@record
class Prediction(Reportable):
    """Bound and expected time of one operator on one machine. Numbers are floats, or arrays in a sweep.

    What it holds took some work to find out. Everything else follows from that by a short formula when it is asked for,
    so that a sweep of 10^7 points holds its times, and not a page for each point.

    The keys of the JSON rows (`ROW_KEYS`) are properties. Five kinds of figure are never mixed: peak (datasheet) >
    sustained (best microbenchmark) >= attainable (bound for this work) >= achieved (measured, in bench records only),
    and predicted, which is the time to expect.

    Attributes
    ----------
    operator, machine, conditions : what was asked for.
    peak : the peak that the operator's arithmetic runs on; None where it computes nothing.
    bound : no honest measurement of a cold call is faster, and the ceiling that sets this.
    estimate : the time to expect, its interval and its terms.
    """

    operator: Operator
    machine: Hardware
    conditions: Conditions
    peak: Peak | None
    bound: roofline.Bound
    estimate: Estimate

    def __eq__(self, other: object) -> bool:
        """Return whether another prediction was asked for alike and says the same, at every point of a sweep."""
        if not isinstance(other, Prediction):
            return NotImplemented
        asked = ("operator", "machine", "conditions", "peak")
        return all(getattr(self, name) == getattr(other, name) for name in asked) and all(
            np.array_equal(getattr(self, name), getattr(other, name), equal_nan=True) for name in _TIMES
        )

    def __hash__(self) -> int:
        """Return a number that equal predictions share: of the call, the machine's name and the conditions."""
        return hash((self.operator, self.machine.name, self.conditions))

    @functools.cached_property
    def work(self) -> Work:
        """Counted FLOP, traffic and working set."""
        return work_on(self.operator, self.machine)

    @property
    def op(self) -> str:
        """The operator's name."""
        return self.operator.op

    @property
    def name(self) -> str:
        """The label that the operator was given, or ""."""
        return self.operator.name

    def __repr__(self) -> str:
        """Return machine, bound and expectation in a line; of several points the least and the most."""
        times = np.ravel(np.asarray(self.predicted_time_s, dtype=float))
        if times.size == 1:
            ends = (self.predicted_time_s, self.predicted_time_low_s, self.predicted_time_high_s, self.bound_time_s)
            expected, low, high, bound = (format_si(np.ravel(end)[0], "s", 3) for end in ends)
            bound = f"bound {bound} by {np.ravel(self.limiter)[0]}"
            call = f"{self.label} {self.rows()[0]['dimensions']} {self.dtype}"
            return f"<Prediction: {call} on {self.hardware}, predicted {expected} ({low} to {high}), {bound}>"
        least, most = (format_si(float(end), "s", 3) for end in (times.min(), times.max()))
        return f"<Prediction: {self.label} on {self.hardware}, {times.size} points, predicted {least} to {most}>"

    @property
    def label(self) -> str:
        """The name to show: the given one, or the operator's."""
        return self.name or self.op

    @property
    def params(self) -> Mapping[str, Any]:
        """The operator's dimensions by name."""
        return self.operator.params()

    @property
    def given(self) -> tuple[str, ...]:
        """The names of the params that are not defaults, which tables for people show."""
        return self.operator.given()

    @property
    def dtype(self) -> str:
        """The operator's dtype."""
        return self.operator.dtype

    @property
    def engine(self) -> str:
        """The engine and dtype of the peak, as "tensor bf16"; "" where nothing is computed."""
        return f"{self.peak.engine} {self.peak.dtype}" if self.peak else ""

    @property
    def count(self) -> int:
        """Number of such calls."""
        return self.operator.count

    @property
    def hardware(self) -> str:
        """The machine's name."""
        return self.machine.name

    @property
    def flop(self) -> Number:
        """Floating-point operations of one call [FLOP]."""
        return self.work.flop

    @property
    def bytes_read(self) -> Number:
        """Bytes that a cold call has to read from device memory [B], without repeated reads that a cache may serve."""
        return self.work.least_read_bytes

    @property
    def bytes_written(self) -> Number:
        """Bytes that a call has to write to device memory [B], without intermediates that a cache may hold."""
        return self.work.least_written_bytes

    @property
    def link_bytes(self) -> Number:
        """Bytes that one GPU sends over its links; 0 for an operator that stays on the device."""
        return plain(sum(link_traffic(self.operator, self.machine).values(), 0.0))

    @property
    def bus_bytes(self) -> Number:
        """Bytes of a collective that nccl-tests divides by the time for the bus bandwidth [B]; 0 for other operators.

        They are what a GPU sends in a ring, 2 S (n - 1) / n for an all-reduce
        (https://github.com/NVIDIA/nccl-tests/blob/master/doc/PERFORMANCE.md), also where fewer cross its link.
        """
        return self.operator.peer_bytes() if isinstance(self.operator, Collective) else 0.0

    @property
    def working_set_bytes(self) -> Number:
        """Size of all tensors [B]."""
        return self.work.working_set_bytes

    @property
    def arithmetic_intensity_flop_per_byte(self) -> Number:
        """FLOP per byte that has to cross device memory [FLOP/B]; its roof is the bound that memory sets."""
        return roofline.arithmetic_intensity(self.work.flop, self.work.least_bytes)

    @property
    def ridge_point_flop_per_byte(self) -> float:
        """Intensity from which a kernel is compute-bound on this machine [FLOP/B]."""
        return ridge_point(self.machine, self.peak)

    @property
    def limiter(self) -> Text:
        """The ceiling that sets the bound (`perfmodel.core.vocabulary.Limiter`)."""
        return self.bound.limiter

    @property
    def bound_time_s(self) -> Number:
        """No honest measurement of a cold call is faster [s]."""
        return self.bound.time_s

    @property
    def fits_in(self) -> Text:
        """The smallest level that holds the working set: a cache, the main memory, or "nothing"."""
        return self._resident()[0]

    @property
    def resident_bound_time_s(self) -> Number:
        """The bound for data in that cache [s]; NaN where they fit none, or its bandwidth is unknown."""
        return self._resident()[1]

    @property
    def resident_limiter(self) -> Text:
        """The ceiling that sets the resident bound, or ""."""
        return self._resident()[2]

    @property
    def timing(self) -> Timing:
        """The interval that is predicted."""
        return self.conditions.timing

    @property
    def cache(self) -> CacheState:
        """The state of the caches."""
        return self.conditions.cache

    @property
    def library(self) -> str:
        """Whose kernels run, with their version where one was named; "" for any."""
        return named(self.conditions.library, self.conditions.version)

    @property
    def load(self) -> Load:
        """For how long the device has been at work."""
        return self.conditions.load

    @property
    def predicted_time_s(self) -> Number:
        """The time to expect [s]; ``prediction_basis`` says from which constants."""
        return self.estimate.time_s

    @property
    def predicted_time_low_s(self) -> Number:
        """Lower end of the 80 % interval [s]."""
        return self.estimate.low_s

    @property
    def predicted_time_high_s(self) -> Number:
        """Upper end of the 80 % interval [s]."""
        return self.estimate.high_s

    @property
    def predicted_limiter(self) -> Text:
        """What most of the predicted time is spent on: the limiter whose terms add up to the most."""
        return self.estimate.limiter

    @property
    def largest_term(self) -> Text:
        """The largest of ``predicted_terms_s``."""
        return self.estimate.largest_term

    @property
    def predicted_terms_s(self) -> Mapping[Any, Number]:
        """The parts that add up to the predicted time [s], by name."""
        return self.estimate.terms.adds

    @property
    def alone_s(self) -> Mapping[Any, Number]:
        """The time that each resource alone would take [s]; resources overlap, so these do not add up."""
        return self.estimate.terms.alone

    @property
    def family(self) -> Text:
        """The formula."""
        return self.estimate.family

    @property
    def calibration(self) -> Text:
        """How well the formula's constants know this machine (`perfmodel.core.vocabulary.Calibration`)."""
        return self.estimate.calibration

    @property
    def regime(self) -> Text:
        """Which residuals the interval comes from: "launch", "mid", "large"."""
        return self.estimate.regime

    @property
    def prediction_basis(self) -> str:
        """The source of the constants, for people."""
        return self.estimate.basis

    @property
    def uncertainty(self) -> Uncertainty:
        """What the interval is made of.

        The rows list the shares of its sources (``interval_shares``), and what the constants have not seen
        (``not_seen``: machine, library, dtype or vendor).
        """
        return self.estimate.uncertainty

    @property
    def attainable_flop_per_s(self) -> Number:
        """FLOP/s at the bound."""
        return plain(np.divide(self.work.flop, self.bound.time_s))

    @property
    def attainable_bytes_per_s(self) -> Number:
        """Bytes read and written / s at the bound: at most the peak of the memory."""
        return plain(np.divide(self.work.least_bytes, self.bound.time_s))

    @property
    def predicted_flop_per_s(self) -> Number:
        """FLOP/s at the predicted time."""
        return plain(np.divide(self.work.flop, self.estimate.time_s))

    @property
    def predicted_bytes_per_s(self) -> Number:
        """Bytes read and written / s at the predicted time."""
        return plain(np.divide(self.work.least_bytes, self.estimate.time_s))

    @property
    def predicted_utilization(self) -> Number:
        """Expected rate over its peak (FLOP/s of the engine, bytes/s of a level), of the resource that is used most.

        NaN where data come from a cache faster than main memory has them.
        """
        return share_of_peak(self.machine, self._times(), self.estimate.time_s, self.conditions.cache)

    @property
    def advice(self) -> Text:
        """The next step, in a sentence."""
        return advise(
            self.bound.limiter,
            self.bound.time_s,
            self.estimate.time_s,
            launch_time(self.machine),
            self.resident_bound_time_s,
            spent_on=self.estimate.limiter,
            moving_s=self.estimate.moving_s,
            measured=False,
            pageable=getattr(self.operator, "pinned", True) is False,
        )

    def _times(self) -> Mapping[Limiter, Number]:
        return bounding_times(self.operator, self.machine, self.work, self.peak)

    def _resident(self) -> tuple[Text, Number, Text]:
        return resident(self.work, self.machine, self._times())

    def rows(self) -> list[dict[str, Any]]:
        """Return one mapping for each point, with plain values; a scalar prediction gives one row."""
        values = {key: getattr(self, key) for key in PLAIN_KEYS}
        errors = self.uncertainty.variances(self.regime)
        return point_rows(values, self.params, self.given, self.predicted_terms_s, errors)
