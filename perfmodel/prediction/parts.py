"""Kernels that run one after another: each with its prediction, and what they take together."""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass

from perfmodel.core.hardware import Hardware
from perfmodel.core.vocabulary import CacheState, Calibration, ErrorSource, Load, Timing
from perfmodel.operators.base import Operator
from perfmodel.prediction.ceilings import resolve_peak
from perfmodel.prediction.conditions import Conditions
from perfmodel.prediction.latency.constants import constants
from perfmodel.prediction.latency.estimate import Estimate, Spread, regime_code
from perfmodel.prediction.latency.families import families_of
from perfmodel.prediction.latency.machine import Machine
from perfmodel.prediction.latency.terms import BOUND, HOST, Term, Terms
from perfmodel.prediction.predict import bound_time, floor_time, predict
from perfmodel.prediction.result import Prediction
from perfmodel.prediction.uncertainty import Uncertainty, half_width, of_sum


@dataclass(frozen=True)
class Part:
    """One operator of a list.

    Attributes
    ----------
    prediction : of one call; its ``count`` says how many times it runs.
    """

    prediction: Prediction

    @property
    def time_s(self) -> float:
        """Expected time of all its calls on the device [s]."""
        return self.prediction.count * float(self.prediction.predicted_time_s)

    @property
    def shape(self) -> Hashable:
        """Name, dtype and dimensions: operators that share them have the same error."""
        return _shape(self.prediction.operator)

    @property
    def variances(self) -> dict[ErrorSource, float]:
        """Source of error -> variance of ln(measured / predicted)."""
        of_point = self.prediction.uncertainty.variances(self.prediction.regime)
        return {source: float(variance) for source, variance in of_point.items()}

    @property
    def terms_s(self) -> dict[Term, float]:
        """The terms that add up to this time [s]."""
        terms = self.prediction.predicted_terms_s
        return {name: self.prediction.count * float(time) for name, time in terms.items()}


def _shape(op: Operator) -> Hashable:
    return op.op, op.dtype, tuple(op.params().items())


def predict_parts(
    op: Operator,
    parts: Sequence[Operator],
    hardware: Hardware,
    *,
    timing: str = Timing.KERNEL,
    cache: str = CacheState.COLD,
    library: str = "",
    load: str = Load.BURST,
) -> Prediction:
    """Return the prediction of a call that runs some operators one after another in place of a single kernel.

    t = sum count t_part on the device, or the host's dispatches where events around the call measure them and they
    take longer. The interval is that of a sum (`of_sum`): what a machine or a library differs by adds up, the errors
    of different shapes average out. The bound is that of the operator, whatever runs. Where the model takes the
    operator itself for these very parts, the prediction is that of `predict`.

    Parameters
    ----------
    op : the operator that the call computes; scalar.
    parts : the operators that it runs, each ``count`` times; scalar, at least one.
    hardware, timing, cache, library, load : as for `predict`.

    Raises
    ------
    UsageError
        As `predict`, for the operator and for each part.
    """
    conditions = Conditions.parse(timing, cache, library, load)
    if _listed(parts) == _listed(op.composition_in(conditions.library)):
        return predict(op, hardware, timing=timing, cache=cache, library=library, load=load)
    peak = resolve_peak(op, hardware) if op.flop() else None
    bound, floor_s = bound_time(op, hardware), float(floor_time(op, hardware, cache))
    predicted = [Part(predict(part, hardware, cache=cache, library=library, load=load)) for part in parts]
    host_s = 0.0
    if conditions.timing.includes_host:
        host_s = sum(part.count * dispatch_time(part, hardware, conditions.library) for part in parts)
    return Prediction(op, hardware, conditions, peak, bound, _sum(predicted, host_s, floor_s))


def _sum(parts: Sequence[Part], host_s: float, floor_s: float) -> Estimate:
    """Return the estimate of parts that run one after another; no sum is below the floor [s]."""
    adds: dict[Term, float] = {}
    for part in parts:
        for name, time_s in part.terms_s.items():
            adds[name] = adds.get(name, 0.0) + time_s
    kernels_s = sum(part.time_s for part in parts)
    time_s = max(kernels_s, host_s, floor_s)
    if host_s > kernels_s:
        adds[HOST] = host_s - kernels_s
    if floor_s > max(kernels_s, host_s):
        adds[BOUND] = floor_s - max(kernels_s, host_s)
    variances = of_sum((part.time_s, part.shape, part.variances) for part in parts)
    factor = math.exp(half_width(variances.values()))
    code = regime_code(adds, time_s)
    everywhere = {source: (variance,) * 3 for source, variance in variances.items()}
    return Estimate(
        time_s=time_s,
        spread=Spread(0, ((1.0 / factor, factor),), floor_s),
        regime_code=code,
        family=_joined(" + ", (str(part.prediction.family) for part in parts)),
        calibration=max((Calibration(str(p.prediction.calibration)) for p in parts), key=list(Calibration).index),
        basis=_joined("; ", (part.prediction.prediction_basis for part in parts)),
        uncertainty=Uncertainty(((True, everywhere),)),
        kept_terms=Terms(adds),
    )


def _joined(separator: str, names: Iterable[str]) -> str:
    return separator.join(dict.fromkeys(names))


def _listed(parts: Iterable[Operator]) -> list[tuple[Hashable, int]]:
    return [(_shape(part), part.count) for part in parts]


def dispatch_time(op: Operator, hardware: Hardware, library: str = "") -> float:
    """Return the time that the host needs to dispatch one call: the constant ``host`` of the operator's family [s]."""
    machine = Machine.of(hardware, resolve_peak(op, hardware) if op.flop() else None)
    (_, family), *_ = families_of(op, machine, hardware.kind)
    return constants(family, hardware, library).values.get("host", 0.0)
