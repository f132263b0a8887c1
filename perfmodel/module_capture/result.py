"""What a captured module consists of: calls by module and phase, parameters, and the memory of its activations."""

from __future__ import annotations

import enum
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from perfmodel import hardware_catalog as catalog
from perfmodel.core.hardware import Hardware
from perfmodel.core.report import Reportable
from perfmodel.operators import Operator
from perfmodel.prediction.whole_model import WholeModel, predict_model

#: vendor whose libraries multiply fp32 in TF32; ROCm's do not unless they are told
NVIDIA = "NVIDIA"
#: path of the module that was captured
ROOT = ""


class Phase(enum.StrEnum):
    """When a call happens in a training step."""

    FORWARD = "forward"
    BACKWARD = "backward"
    OPTIMIZER = "optimizer"


@dataclass(frozen=True)
class CapturedCall:
    """Equal calls of one operator of PyTorch in one module.

    Attributes
    ----------
    module : path of the innermost module, "" for the captured one.
    phase : of the step.
    name : operator, shapes and dtypes: "aten::addmm(bias 512, 16x2048, 2048x512) bf16".
    op : the operator of the model that one call computes, or None.
    count : how often.
    bytes : of the tensors of one call [B].
    not_modelled : why ``op`` is None, or empty.
    """

    module: str
    phase: Phase
    name: str
    op: Operator | None
    count: int
    bytes: float
    not_modelled: str = ""

    @property
    def flop(self) -> float:
        """FLOP of all calls; 0 for what is not modelled."""
        return self.count * self.op.count * float(self.op.flop()) if self.op is not None else 0.0

    @property
    def moved_bytes(self) -> float:
        """Compulsory traffic of all calls [B]."""
        if self.op is None:
            return self.count * self.bytes
        return self.count * self.op.count * float(self.op.work().least_bytes)


@dataclass(frozen=True)
class NotModelled:
    """One operator of PyTorch that the model does not have.

    Attributes
    ----------
    name : "aten::linalg_qr".
    calls : how often it runs.
    bytes, share_of_bytes : of the tensors of all its calls [B], and their share of the traffic of all operators.
    reason : why its first call has none.
    """

    name: str
    calls: int
    bytes: float
    share_of_bytes: float
    reason: str


@dataclass(frozen=True)
class ModuleFacts:
    """One module.

    Attributes
    ----------
    path : as ``named_modules`` has it, "" for the captured one.
    kind : name of its class.
    parameters, trainable : elements of its parameters and those of the modules in it; shared ones count once.
    activation_bytes : tensors that its forward pass saves for the backward pass, each storage once [B].
    """

    path: str
    kind: str
    parameters: int
    trainable: int
    activation_bytes: float

    @property
    def depth(self) -> int:
        """How many modules it is inside of."""
        return self.path.count(".") + 1 if self.path else 0


@dataclass(frozen=True)
class Captured(Reportable):
    """The operators of a module.

    Attributes
    ----------
    title : class of the module and its inputs.
    calls : what it runs.
    modules : the module and all modules in it.
    cast_to : dtype that the parameters were cast to, which is that of the inputs; empty where they kept their own.
    recurrent : classes of the recurrent layers that ran. Their steps are PyTorch's general operators; a GPU computes
        the same products in fewer kernels, so that traffic and times are upper limits for them.
    decided : lines ("file:line") at which values of inputs, buffers or parameters decided what runs: other values may
        run other operators.
    tf32 : operators whose products in fp32 run in TF32 on GPUs that have it, as PyTorch was set when it was captured:
        convolutions by default.
    measured_s : path -> measured time of the forward pass [s], where it was run.
    measured_backward_s : of the whole backward pass [s], None where it was not run.
    measured_on : the device that it ran on, or empty.
    """

    title: str
    calls: tuple[CapturedCall, ...]
    modules: tuple[ModuleFacts, ...]
    cast_to: str = ""
    recurrent: tuple[str, ...] = ()
    decided: tuple[str, ...] = ()
    tf32: tuple[str, ...] = ()
    measured_s: Mapping[str, float] = field(default_factory=dict)
    measured_backward_s: float | None = None
    measured_on: str = ""

    @property
    def root(self) -> ModuleFacts:
        """The captured module itself."""
        return self.modules[0]

    @property
    def flop(self) -> float:
        """FLOP of all phases; a lower limit where some calls are not modelled."""
        return sum(call.flop for call in self.calls)

    @property
    def modelled(self) -> tuple[CapturedCall, ...]:
        """The calls that have an operator."""
        return tuple(call for call in self.calls if call.op is not None)

    @property
    def has_gradients(self) -> bool:
        """Whether gradients were captured too; without them nothing is saved for them, and nothing is known of it."""
        return any(call.phase == Phase.BACKWARD for call in self.calls)

    def within(self, path: str) -> tuple[CapturedCall, ...]:
        """Return the calls of a module and of the modules in it."""
        inner = f"{path}."
        return tuple(call for call in self.calls if not path or call.module == path or call.module.startswith(inner))

    def not_modelled_share(self, path: str = ROOT) -> float:
        """Return the fraction of a module's traffic that calls without an operator cause; 0 for a module of none."""
        calls = self.within(path)
        total = sum(call.moved_bytes for call in calls)
        return sum(call.moved_bytes for call in calls if call.op is None) / total if total else 0.0

    def not_modelled(self) -> tuple[NotModelled, ...]:
        """Return the operators of PyTorch that have none of the model, the one with the most traffic first."""
        total = sum(call.moved_bytes for call in self.calls)
        found: dict[str, NotModelled] = {}
        for call in self.calls:
            if call.op is None:
                name = call.name.partition("(")[0]
                known = found.get(name, NotModelled(name, 0, 0.0, 0.0, call.not_modelled))
                moved = known.bytes + call.moved_bytes
                found[name] = replace(
                    known, calls=known.calls + call.count, bytes=moved, share_of_bytes=moved / total if total else 0.0
                )
        return tuple(sorted(found.values(), key=lambda one: -one.bytes))

    def operators(self) -> list[Operator]:
        """Return the operators with their counts, each named after its module: what `perfmodel analyze` reads."""
        return [_named(call) for call in self.modelled]

    def predict(self, hardware: Hardware | str | os.PathLike[str]) -> WholeModel:
        """Return the time to expect on a machine, or on the one that a name, an alias or a spec file stands for.

        Raises
        ------
        UsageError
            When no call has an operator, no machine has the name, or it has no peak for a dtype.
        """
        machine = hardware if isinstance(hardware, Hardware) else catalog.hardware(hardware)
        calls = (replace(call, op=self._as_run(call.op, machine)) for call in self.modelled if call.op is not None)
        return predict_model([_named(call) for call in calls], machine)

    def in_tf32(self, machine: Hardware) -> bool:
        """Return whether some of the operators run in TF32 on a machine."""
        return any(self._as_run(call.op, machine) is not call.op for call in self.calls if call.op is not None)

    def _as_run(self, op: Operator, machine: Hardware) -> Operator:
        """Return an operator in TF32 where PyTorch and the machine multiply fp32 so, else as it is."""
        has = machine.vendor == NVIDIA and machine.find_peak("tf32", "tensor") is not None
        chosen = has and op.op in self.tf32 and op.dtype == "fp32" and op.engine == "auto"
        return op.changed(dtype="tf32") if chosen else op


def _named(call: CapturedCall) -> Operator:
    assert call.op is not None
    where = call.module or "(module)"
    name = where if call.phase == Phase.FORWARD else f"{where} {call.phase}"
    return call.op.changed(name=name, count=call.op.count * call.count)


def merged(calls: Sequence[CapturedCall]) -> tuple[CapturedCall, ...]:
    """Return calls with equal ones of a module and phase added up, in the order of their first occurrence."""
    groups: dict[tuple[str, Phase, str], CapturedCall] = {}
    for call in calls:
        key = (call.module, call.phase, call.name)
        known = groups.get(key)
        groups[key] = call if known is None else replace(known, count=known.count + call.count)
    return tuple(groups.values())
