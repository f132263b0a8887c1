"""A problem and its algorithms: what each counts and takes, and the rates that closed forms of them share."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any

from perfmodel.core.hardware import Hardware, Peak
from perfmodel.core.vocabulary import CacheState, Timing
from perfmodel.operators import load_operator
from perfmodel.operators.base import Operator
from perfmodel.prediction.ceilings import resolve_peak, sustained_ceilings
from perfmodel.prediction.latency.constants import WIDEST
from perfmodel.prediction.predict import predict
from perfmodel.prediction.usual_figures import completed


@dataclass(frozen=True)
class Cost:
    """What one algorithm counts and takes; the attributes are keys of the JSON rows.

    Attributes
    ----------
    algorithm : its name.
    flop, bytes : arithmetic [FLOP], and traffic to device memory with nothing cached, for collectives over the link
        [B].
    kernels : kernels of one call.
    workspace_bytes : memory beside inputs and outputs [B].
    time_s, time_low_s, time_high_s : expected time and its 80 % interval [s]; NaN where it cannot run.
    why_not : why it does not apply here, "" where it does.
    basis : where the time comes from.
    """

    algorithm: str
    flop: float = math.nan
    bytes: float = math.nan
    kernels: float = math.nan
    workspace_bytes: float = 0.0
    time_s: float = math.nan
    time_low_s: float = math.nan
    time_high_s: float = math.nan
    why_not: str = ""
    basis: str = ""

    @property
    def applies(self) -> bool:
        """Whether the algorithm may be chosen here."""
        return not self.why_not and math.isfinite(self.time_s)

    def refused(self, why_not: str) -> Cost:
        """Return the cost of an algorithm that does not apply, for a reason; "" leaves it as it is."""
        return replace(self, why_not=why_not) if why_not else self

    def slower(self, times: float) -> Cost:
        """Return the cost of what counts the same and takes so many times as long."""
        low, high = self.time_low_s * times, self.time_high_s * times
        return replace(self, time_s=self.time_s * times, time_low_s=low, time_high_s=high)


Costs = Callable[[Any, Hardware], Sequence[Cost]]


def _always(op: Operator) -> bool:
    return True


@dataclass(frozen=True, eq=False)
class Problem:
    """A problem that several algorithms solve.

    Attributes
    ----------
    name : its name, that of its file.
    op : name of the operator that states it.
    size : the dimension that crossovers run over, and what it is called.
    sizes : smallest and largest size of the plot and of the search.
    costs : (operator, machine) -> what each algorithm takes.
    resized : (operator, size) -> the operator at another size; None changes the dimension ``size`` alone.
    defaults : dimensions that complete a problem named without its operator; see `completing`.
    states : whether an operator of that name states the problem, as one ``kind`` of elementwise.
    main : whether it is what the operator's name alone asks for.
    note : a sentence about what all its rows assume.
    """

    name: str
    op: str
    size: str
    sizes: tuple[float, float]
    costs: Costs
    resized: Callable[[Any, float], Operator] | None = None
    defaults: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))
    states: Callable[[Any], bool] = _always
    main: bool = True
    note: str = ""

    def stated_by(self, op: Operator) -> bool:
        """Return whether an operator states this problem."""
        return op.op == self.op and self.states(op)

    @property
    def stating(self) -> Mapping[str, str]:
        """The defaults without which the operator states another problem, as the ``kind`` of elementwise."""
        return {key: value for key, value in self.defaults.items() if isinstance(value, str) and key != "dtype"}

    def completing(self, given: Collection[str]) -> Mapping[str, Any]:
        """Return the defaults that complete the dimensions of some names.

        Dimensions that state the operator wholly mean what they mean to it, and take its own defaults; others are
        completed by all defaults of the problem, so that these belong together.
        """
        needed = {item.name for item in dataclasses.fields(load_operator(self.op))
                  if item.default is dataclasses.MISSING and item.default_factory is dataclasses.MISSING}  # fmt: skip
        defaults = self.stating if needed <= {*given, *self.stating} else self.defaults
        return {key: value for key, value in defaults.items() if key not in given}

    def at(self, op: Operator, size: float) -> Operator:
        """Return the problem at another size."""
        return self.resized(op, size) if self.resized else op.changed(**{self.size: size})


@dataclass(frozen=True)
class Rates:
    """What a machine sustains: arithmetic [FLOP/s], memory [B/s], and the start of a kernel [s]."""

    flop_per_s: float
    bytes_per_s: float
    start_s: float

    @classmethod
    def of(cls, hardware: Hardware, peak: Peak | None) -> Rates:
        """Return the sustained rates of a machine; the usual shares of the datasheet's where none was measured."""
        ceilings = sustained_ceilings(hardware, peak, {})
        memory = ceilings.memory.get(hardware.main_memory.name, math.nan)
        return cls(ceilings.compute or math.inf, memory, ceilings.launch_s or 0.0)

    @classmethod
    def for_op(cls, op: Operator, hardware: Hardware) -> Rates:
        """Return the rates of the engine that an operator runs on, a usual one where the specification has none."""
        return cls.of(hardware, resolve_peak(op, completed(hardware)))

    def time_s(self, flop: float, moved_bytes: float, kernels: float = 1.0) -> float:
        """Return kernels x start + max(FLOP / F, bytes / B) [s]."""
        return kernels * self.start_s + max(flop / self.flop_per_s, moved_bytes / self.bytes_per_s)


def predicted(algorithm: str, op: Operator, hardware: Hardware, *, kernels: float = 1.0, workspace_bytes: float = 0.0,
              why_not: str = "", scale: float = 1.0, library: str = "", basis: str = "") -> Cost:  # fmt: skip
    """Return what an algorithm takes that is an operator of its own: its counts, and the predicted time.

    Parameters
    ----------
    scale : by which the predicted time is multiplied.
    """
    found = predict(op, hardware, timing=Timing.KERNEL, cache=CacheState.COLD, library=library)
    return Cost(
        algorithm,
        flop=float(found.flop),
        bytes=float(found.work.bytes),
        kernels=float(kernels),
        workspace_bytes=float(workspace_bytes),
        time_s=float(found.predicted_time_s) * scale,
        time_low_s=float(found.predicted_time_low_s) * scale,
        time_high_s=float(found.predicted_time_high_s) * scale,
        why_not=why_not,
        basis=basis or found.prediction_basis,
    )


def counted(algorithm: str, time_s: float, *, flop: float, moved_bytes: float, kernels: float,
            workspace_bytes: float = 0.0, why_not: str = "", basis: str = "closed form") -> Cost:  # fmt: skip
    """Return what an algorithm takes by a closed form; nothing was fitted, so that the interval is a factor of two."""
    low, high = WIDEST
    return Cost(
        algorithm, flop, moved_bytes, kernels, workspace_bytes, time_s, time_s * low, time_s * high, why_not, basis
    )


def in_sequence(algorithm: str, parts: Sequence[tuple[float, Cost]], *, workspace_bytes: float = 0.0,
                why_not: str = "") -> Cost:  # fmt: skip
    """Return what an algorithm takes that runs some parts one after another, each a number of times."""

    def total(key: str) -> float:
        return math.fsum(times * getattr(part, key) for times, part in parts)

    return Cost(
        algorithm,
        flop=total("flop"),
        bytes=total("bytes"),
        kernels=total("kernels"),
        workspace_bytes=workspace_bytes,
        time_s=total("time_s"),
        time_low_s=total("time_low_s"),
        time_high_s=total("time_high_s"),
        why_not=why_not,
        basis="sum of its kernels",
    )
