"""The kinds of steps of a path: what each makes of the run that the steps before it left."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from perfmodel.core.hardware import Hardware
from perfmodel.diagnosis.fusion import fuse
from perfmodel.diagnosis.wall import LAUNCH_GAPS, SYNC_GAPS
from perfmodel.errors import UsageError
from perfmodel.investment.scenario import Step
from perfmodel.operators import Operator
from perfmodel.operators.memcpy import Memcpy
from perfmodel.prediction.predict import predict
from perfmodel.profile.profile import ProfileEntry

#: which dimension of an operator grows with the number of items of a run
_BATCH_DIMENSIONS = ("batch", "n", "rows", "numel", "tokens")


@dataclass
class Run:
    """The run after the steps so far: its entries by name, what was touched, and the items it works on."""

    entries: dict[str, ProfileEntry]
    hardware: Hardware | None
    touched: set[str] = field(default_factory=set)
    grown: float = 1.0

    def time_s(self, names: tuple[str, ...] = ()) -> float:
        """Return the time of some entries, or of all [s]."""
        return math.fsum(entry.time_s for name, entry in self.entries.items() if not names or name in names)

    def predicted_s(self, op: Operator, step: Step) -> float:
        """Return the predicted time of one call [s]."""
        if self.hardware is None:
            raise step.error(f"a {step.kind!r} step needs a machine.", "Name it with --on.")
        return float(predict(op, self.hardware).predicted_time_s)

    def operator(self, name: str, step: Step) -> Operator:
        """Return the operator of an entry."""
        op = self.entries[name].op
        if op is None:
            raise step.error(
                f"nothing says what {name!r} computes, so its new time cannot be predicted.",
                "Give it an [[operators]] table, or use kind = 'scale' with a speedup.",
            )
        return op


def _scale(step: Step, targets: tuple[str, ...], run: Run) -> tuple[tuple[str, ...], str]:
    time_s = run.time_s(targets)
    if step.new_time_s is not None:
        factor, basis = (step.new_time_s / time_s if time_s else 0.0), "the path's new time"
    else:
        assert step.speedup is not None
        factor, basis = 1.0 / step.speedup, "the path's speedup"
    for name in targets:
        run.entries[name] = dataclasses.replace(run.entries[name], time_s=run.entries[name].time_s * factor)
    return targets, basis


def _changed(change: Callable[[Operator], Operator], step: Step, targets: tuple[str, ...], run: Run) -> str:
    """Change the operators of some entries, and their times by the ratio of the predictions."""
    for name in targets:
        op, entry = run.operator(name, step), run.entries[name]
        try:
            new = change(op)
            ratio = run.predicted_s(new, step) / run.predicted_s(op, step)
        except UsageError as error:
            raise step.error(f"{name!r}: {error.message}", error.remedy) from None
        run.entries[name] = dataclasses.replace(entry, op=new, time_s=entry.time_s * ratio)
    assert run.hardware is not None
    return f"ratio of the predictions on {run.hardware.name}"


def _dtype(step: Step, targets: tuple[str, ...], run: Run) -> tuple[tuple[str, ...], str]:
    return targets, _changed(lambda op: op.changed(dtype=step.dtype), step, targets, run)


def _algorithm(step: Step, targets: tuple[str, ...], run: Run) -> tuple[tuple[str, ...], str]:
    def change(op: Operator) -> Operator:
        if "algorithm" not in op.dimensions():
            raise UsageError(f"{op.op} has one algorithm only.", remedy="Take it out of the targets.")
        return op.changed(algorithm=step.algorithm)

    return targets, _changed(change, step, targets, run)


def _batch(step: Step, targets: tuple[str, ...], run: Run) -> tuple[tuple[str, ...], str]:
    """Scale the work of every target; what nothing says the work of takes the factor in time.

    As many kernels are launched and as many values fetched as before: those gaps of a traced run keep their time.
    """
    assert step.factor is not None
    fixed = set(step.resolve(step.fixed, run.entries)) if step.fixed else set()
    fixed |= {name for name in targets if name == LAUNCH_GAPS or name.startswith(SYNC_GAPS)}
    moving = tuple(name for name in targets if name not in fixed)
    known = tuple(name for name in moving if run.entries[name].op is not None and run.hardware is not None)
    if known:
        _changed(lambda op: _with_batch(op, step.factor or 1.0), step, known, run)
    for name in moving:
        if name not in known:
            run.entries[name] = dataclasses.replace(run.entries[name], time_s=run.entries[name].time_s * step.factor)
    run.grown *= step.factor
    basis = f"ratio of the predictions for {len(known)} entries" if known else ""
    rest = f"time in proportion for {len(moving) - len(known)}" if len(moving) > len(known) else ""
    return targets, ", ".join(part for part in (basis, rest) if part)


def _with_batch(op: Operator, factor: float) -> Operator:
    """Return an operator on ``factor`` times as many items: rows of a product, sequences, pixels or rows."""
    dimension = next((name for name in _BATCH_DIMENSIONS if name in op.dimensions()), "")
    if isinstance(op, Memcpy):
        dimension = "bytes"
    if op.op == "gemm" and getattr(op, "batch", 1) == 1:
        dimension = "m"
    if not dimension:
        raise UsageError(f"{op.op} has no dimension that grows with the batch.", remedy="Name it in fixed.")
    return op.changed(**{dimension: max(1, round(getattr(op, dimension) * factor))})


def _checkpoint(step: Step, targets: tuple[str, ...], run: Run) -> tuple[tuple[str, ...], str]:
    """Compute the targets once more in the backward pass, instead of keeping their activations."""
    name = f"recomputation ({step.name})"
    run.entries[name] = ProfileEntry(name, step.share * run.time_s(targets))
    return (*targets, name), f"{100 * step.share:g} % of the targets' time once more"


def _fuse(step: Step, targets: tuple[str, ...], run: Run) -> tuple[tuple[str, ...], str]:
    """Make one entry of several."""
    before_s = run.time_s(targets)
    if step.speedup is not None:
        after_s, basis = before_s / step.speedup, "the path's speedup"
    else:
        operators = [run.operator(name, step) for name in targets]
        if run.hardware is None:
            raise step.error("a 'fuse' step without a speedup needs a machine.", "Name it with --on.")
        try:
            made = fuse(operators, run.hardware, times_s=[run.entries[name].time_s for name in targets])
        except UsageError as error:
            raise step.error(error.message, error.remedy) from None
        after_s, basis = made.fused_time_s, f"{made.verdict}: {made.reason}"
    for name in targets:
        del run.entries[name]
    run.entries[step.name] = ProfileEntry(step.name, after_s)
    return (step.name,), basis


def _remove(step: Step, targets: tuple[str, ...], run: Run) -> tuple[tuple[str, ...], str]:
    for name in targets:
        run.entries[name] = dataclasses.replace(run.entries[name], time_s=0.0)
    return targets, "removed"


#: kind -> what does it; returns the entries that it leaves of the targets, and where their time comes from
DO: Mapping[str, Callable[[Step, tuple[str, ...], Run], tuple[tuple[str, ...], str]]] = {
    "scale": _scale,
    "dtype": _dtype,
    "algorithm": _algorithm,
    "batch": _batch,
    "checkpoint": _checkpoint,
    "fuse": _fuse,
    "remove": _remove,
}
