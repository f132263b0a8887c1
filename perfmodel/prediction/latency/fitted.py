"""A family as it holds for calls on a machine, whatever their sizes: found once, and kept on the machine.

A single prediction takes tens of microseconds. What its operator's sizes do not change, the kernel's family with its
constants, where they come from, and which doubts are about every such call, would take as long again each time.
"""

from __future__ import annotations

from typing import Any

from perfmodel.core.hardware import Hardware, Peak, cached_per_settings
from perfmodel.core.record import record
from perfmodel.core.vocabulary import Load, Timing
from perfmodel.operators.attention import Attention
from perfmodel.operators.base import Operator
from perfmodel.prediction.conditions import Conditions
from perfmodel.prediction.latency.constants import Constants, constants, tells_dispatch
from perfmodel.prediction.latency.dispatch import SHIPPED, dispatch_of
from perfmodel.prediction.latency.families import family_of_any_size, has_eager, varied_families
from perfmodel.prediction.latency.family import OF_ANY_CALL, Family, Values
from perfmodel.prediction.latency.instructions import launched
from perfmodel.prediction.latency.machine import Machine
from perfmodel.prediction.latency.named import as_known
from perfmodel.prediction.latency.streams import FRAMEWORKS, FUSED

#: libraries whose kernels are known, so that PyTorch's say little of what they take
_KNOWN = frozenset((*FRAMEWORKS, *FUSED, *Attention.WRITING))
#: what the basis says of the load
LOADS = {Load.BURST: "", Load.SUSTAINED: "; after minutes of load, as fitted to training steps"}


@record
class Fitted:
    """A family with the constants that hold for calls of some settings, on a machine and under some conditions.

    Attributes
    ----------
    family, hardware, machine, conditions : what the constants are of.
    known : the constants, and how sure they are.
    c : the constants as the formula gets them, with the dispatch of the caller.
    doubts : the doubts that are about all such calls: see `Doubted.of_any_size`.
    basis, load : the source of the constants, and what is to be said of the load, for people.
    """

    family: Family
    hardware: Hardware
    machine: Machine
    conditions: Conditions
    known: Constants
    c: Values
    doubts: int
    basis: str
    load: str


@cached_per_settings
def fitted(hardware: Hardware, op: Operator, family: Family, peak: Peak | None, conditions: Conditions) -> Fitted:
    """Return a family as it holds for calls of an operator's settings.

    Parameters
    ----------
    hardware, op, family : the machine, the operator and its family.
    peak : of the instructions that its kernels run.
    conditions : the interval timed, the state of the caches, the library.
    """
    machine = Machine.of(hardware, peak)
    known = constants(family, hardware, family.library_of(conditions), op.kernel_dtype)
    values = caller_values(family, known.values, machine.hardware, conditions)
    doubts = known.doubted.of_any_size(op, machine, conditions)
    basis, load = f"{family.name}, {known.origin}", LOADS[conditions.load]
    return Fitted(family, hardware, machine, conditions, known, values, doubts, basis, load)


@cached_per_settings
def fitted_to_any_size(hardware: Hardware, op: Operator, peak: Peak | None, conditions: Conditions) -> Fitted | None:
    """Return the family that serves all calls of an operator's settings, one kernel each; None where sizes may decide.

    It is None, too, where more than its time makes the estimate: that of events, of other instructions, or of other
    libraries' kernels (`perfmodel.prediction.latency.model`).
    """
    kind: Any = type(op)
    composed = kind.composition is not Operator.composition or kind.composition_in is not Operator.composition_in
    if composed or conditions.timing == Timing.DO_BENCH:
        return None
    conditions = as_known(op.op, hardware, conditions)
    peak, others = launched(op, hardware, peak, conditions.library)
    if others is not None or reaches_others(op.op, hardware, conditions):
        return None
    family = family_of_any_size(op, Machine.of(hardware, peak), hardware.kind, conditions.library)
    return fitted(hardware, op, family, peak, conditions) if family else None


def reaches_others(op: str, hardware: Hardware, conditions: Conditions) -> bool:
    """Return whether other kernels than the assumed ones may run for an operator, given by its name."""
    if knows_kernels(hardware, conditions):
        return False
    return has_eager(op) or not (conditions.library or not varied_families(op))


def knows_kernels(hardware: Hardware, conditions: Conditions) -> bool:
    """Return whether the kernels of a caller are known, so that PyTorch's say little of what they take."""
    return conditions.caller in _KNOWN or hardware.kind == "cpu"


def caller_values(family: Family, values: Values, hardware: Hardware | None, conditions: Conditions) -> Values:
    """Return a family's values with the dispatch of the caller, where neither own rows nor tables tell it.

    The tables that are shipped tell that of their releases (`perfmodel.prediction.latency.dispatch.MEASURED`), those
    of `calibrate` that of whoever made the rows.
    """
    includes = conditions.timing.includes_host and family.dispatched
    told = dispatch_of(conditions, family.name) if includes else None
    own = hardware.latency.get(family.name) if hardware else None
    if told is None or (own is not None and tells_dispatch(own) and SHIPPED not in own.source):
        return values
    return {**values, "host": told.host_s, "hidden": told.hidden_s, OF_ANY_CALL: 1.0}
