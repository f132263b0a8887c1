"""The time of a whole model: its kernels one after the other, or the host that cannot dispatch them fast enough."""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from perfmodel.core.hardware import Hardware
from perfmodel.core.report import Reportable
from perfmodel.core.units import format_count, format_si
from perfmodel.core.vocabulary import CacheState, ErrorSource, Limiter, Load, Timing
from perfmodel.errors import UsageError
from perfmodel.operators.base import Operator
from perfmodel.prediction.ceilings import resolve_peak
from perfmodel.prediction.conditions import Conditions
from perfmodel.prediction.latency.compositions import parts_of
from perfmodel.prediction.latency.constants import constants
from perfmodel.prediction.latency.doubts import HOST_DEVIATION
from perfmodel.prediction.latency.families import families_of
from perfmodel.prediction.latency.family import dispatched_s
from perfmodel.prediction.latency.machine import Machine
from perfmodel.prediction.latency.terms import Term
from perfmodel.prediction.launching import kernel_gap_s
from perfmodel.prediction.predict import predict
from perfmodel.prediction.result import Prediction
from perfmodel.prediction.uncertainty import Z80, half_width, of_sum, shape_of
from perfmodel.prediction.usual_figures import completed

#: standard deviation of ln(measured / predicted) of a whole model whose operators are known, where the machine's
#: specification states none: about the largest of the medians on the machines of scripts/whole_models.py (fp32
#: inference, sitar-lab/NeuSight @ 6945927d9afc), 9 % on T4, whose clock depends on how long it has been under load; 1
#: to 4 % on six others. P4 states its own
RUN_DEVIATION = 0.10
GAP = Term("gap", Limiter.LAUNCH, "device idle between two kernels")


@dataclass(frozen=True)
class Part:
    """One operator of the list.

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
        return shape_of(self.prediction.operator)

    @property
    def variances(self) -> dict[ErrorSource, float]:
        """Source of error -> variance of ln(measured / predicted)."""
        of_point = self.prediction.uncertainty.variances(self.prediction.regime)
        return {source: float(variance) for source, variance in of_point.items()}

    @property
    def terms_s(self) -> dict[str, float]:
        """The terms that add up to this time [s]."""
        terms = self.prediction.predicted_terms_s
        return {name: self.prediction.count * float(time) for name, time in terms.items()}


@dataclass(frozen=True)
class WholeModel(Reportable):
    """The time to expect for a list of operators that run one after the other on one stream.

    Attributes
    ----------
    hardware : the machine.
    time_s : expected time [s], the larger of the device's and the host's.
    low_s, high_s : 80 % interval [s]: what a machine or a library differs by adds up over the operators, the errors of
        their shapes average out, and the run differs from that of single operators; hosts differ in their dispatch.
    kernels_s : sum of the kernels [s].
    gaps_s : sum of the idle times between them [s].
    host_s : sum of the dispatches [s].
    variances : source of error -> variance of ln(measured / predicted) of the kernels' sum.
    parts : the operators of the list with their predictions.
    """

    hardware: str
    time_s: float
    low_s: float
    high_s: float
    kernels_s: float
    gaps_s: float
    host_s: float
    variances: Mapping[ErrorSource, float]
    parts: tuple[Part, ...]

    def __repr__(self) -> str:
        """Return the whole in a line."""
        whole, low, high = (format_si(time_s, "s", 3) for time_s in (self.time_s, self.low_s, self.high_s))
        number = format_count(len(self.parts), "operator")
        return f"<WholeModel: {number} on {self.hardware}, {whole} ({low} to {high}), {self.limiter}>"

    @property
    def time_low_s(self) -> float:
        """Lower end of the 80 % interval [s], by the key of JSON."""
        return self.low_s

    @property
    def time_high_s(self) -> float:
        """Upper end of the 80 % interval [s], by the key of JSON."""
        return self.high_s

    @property
    def limiter(self) -> str:
        """The side that sets the time: "device" or "host"."""
        return "host" if self.host_s > self.kernels_s + self.gaps_s else "device"

    def by_family(self) -> dict[str, float]:
        """Return the time of the kernels by latency family, the largest first [s]."""
        return _summed((str(part.prediction.family), part.time_s) for part in self.parts)

    def by_term(self) -> dict[str, float]:
        """Return the terms that add up to the device's time, the largest first: those of kernels, and "gap" [s]."""
        return _summed([*(item for part in self.parts for item in part.terms_s.items()), (GAP, self.gaps_s)])


def run_deviation(hardware: Hardware) -> float:
    """Return the standard deviation of ln(measured / predicted) of a whole run whose operators are known.

    It is that of the machine's specification, where its clock is known to vary, else `RUN_DEVIATION`.
    """
    return hardware.run_deviation or RUN_DEVIATION


def _summed(items: Iterable[tuple[str, float]]) -> dict[str, float]:
    total: dict[str, float] = {}
    for name, time in items:
        total[name] = total.get(name, 0.0) + time
    return dict(sorted(total.items(), key=lambda item: -item[1]))


def predict_model(
    operators: Iterable[Operator],
    hardware: Hardware,
    *,
    cache: str = CacheState.COLD,
    library: str = "",
    load: str = Load.BURST,
    gap_s: float | None = None,
) -> WholeModel:
    """Return the time of a list of operators, each run ``count`` times, one after the other.

    t = max(sum count (t_kernel + gap), sum count t_dispatch): kernels queue on the device while the host runs ahead,
    unless the host is the slower of the two. Each has an interval of its own, that of the host `HOST_DEVIATION`: which
    host it is, no specification knows. The ends are the larger of their low ends and of their high ends. The sum of
    times between events around every call would count each dispatch, although most of them overlap with kernels. An
    operator that a library runs as several kernels has as many gaps and dispatches.

    Parameters
    ----------
    operators : scalar operators with their counts, as `perfmodel.workloads.transformer.forward_pass` lists them.
    hardware : the machine.
    cache : "cold", every operator reads from device memory; "warm", what fits a cache lies there.
    library, load : whose kernels run, and for how long the device has been at work, as for `perfmodel.predict`.
    gap_s : idle time of the device between two kernels; None for the usual one of the machine [s].

    Raises
    ------
    UsageError
        For an empty list, an operator whose dimensions are arrays, and as `perfmodel.predict`.
    """
    listed = list(operators)
    if not listed:
        raise UsageError("the model has no operators.", place="predict_model")
    if gap_s is not None and not 0 <= gap_s < math.inf:
        raise UsageError(f"gap_s is {gap_s:g} s.", place="predict_model", remedy="Give a time of 0 s or more.")
    parts = tuple(_part(op, hardware, cache, library, load) for op in listed)
    kernels = sum(part.time_s for part in parts)
    named = Conditions.parse(library=library)
    kernels_run = sum(op.count * count for op in listed for count, _ in _kernels(op, named))
    gaps = kernels_run * (kernel_gap_s(hardware) if gap_s is None else gap_s)
    host = sum(op.count * dispatch_time(op, hardware, library) for op in listed)
    of_parts = of_sum((part.time_s, part.shape, part.variances) for part in parts)
    variances = {source: float(variance) for source, variance in of_parts.items()}
    variances[ErrorSource.RUN] = run_deviation(hardware) ** 2
    factor, of_host = math.exp(half_width(variances.values())), math.exp(Z80 * HOST_DEVIATION)
    return WholeModel(
        hardware=hardware.name,
        time_s=max(kernels + gaps, host),
        low_s=max(kernels / factor + gaps, host / of_host),
        high_s=max(kernels * factor + gaps, host * of_host),
        kernels_s=kernels,
        gaps_s=gaps,
        host_s=host,
        variances=variances,
        parts=parts,
    )


def _part(op: Operator, hardware: Hardware, cache: str, library: str, load: str) -> Part:
    arrays = [name for name, value in op.params().items() if np.ndim(value)]
    if arrays:
        raise UsageError(f"{', '.join(arrays)} is an array.", place=op.op, remedy="List single operators with a count.")
    prediction = predict(op, hardware, timing=Timing.KERNEL, cache=cache, library=library, load=load)
    return Part(prediction)


def dispatch_time(op: Operator, hardware: Hardware, library: str = "") -> float:
    """Return the time that the host needs to dispatch an operator [s].

    It is the constant ``host`` of the operator's family for one call, or of each of the kernels that run one after
    another in its place; see `dispatched_s` for several.
    """
    conditions = Conditions.parse(library=library)
    return sum(count * _dispatch_s(kernel, hardware, conditions) for count, kernel in _kernels(op, conditions))


def _kernels(op: Operator, conditions: Conditions) -> list[tuple[int, Operator]]:
    """Return what a library runs for an operator, each with how often: the operator itself, or its composition."""
    parts = parts_of(op, conditions)
    if not parts:
        return [(1, op)]
    return [(part.count * count, kernel) for part in parts for count, kernel in _kernels(part, conditions)]


def _dispatch_s(op: Operator, hardware: Hardware, conditions: Conditions) -> float:
    machine = Machine.of(hardware, resolve_peak(op, completed(hardware)) if op.flop() else None)
    (_, family), *_ = families_of(op, machine, hardware.kind)
    values = constants(family, hardware, family.library_of(conditions)).values
    return float(dispatched_s(values.get("host", 0.0), values.get("hidden", 0.0), op.calls()))
