"""What each kind of step of a scenario does to the run that the steps before it left."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from perfmodel.core.hardware import Hardware
from perfmodel.diagnosis.fusion import fuse_operators
from perfmodel.diagnosis.profiled import profiled_time
from perfmodel.diagnosis.wall import LAUNCH_GAPS, SYNC_GAPS
from perfmodel.errors import UsageError
from perfmodel.investment.algorithm import time_ratio
from perfmodel.investment.move import Trace, move_entries
from perfmodel.investment.scenario import Step
from perfmodel.operators import Operator
from perfmodel.operators.memcpy import Memcpy
from perfmodel.prediction.predict import predict
from perfmodel.profile.profile import ProfileEntry

#: dimensions that grow with the number of items of a run; the first one that an operator has is used
_BATCH_DIMENSIONS = ("batch", "n", "rows", "numel", "tokens")

Names = tuple[str, ...]


@dataclass
class Run:
    """The run after the steps so far.

    Attributes
    ----------
    entries : name -> entry.
    hardware : the machine, or None.
    find : returns the machine with a name, for steps that move the run; None knows no machine.
    touched : entries that a step has changed.
    growth : new over old number of items that the run works on.
    trace : the traced run behind the entries, which a move replays; None without a time line.
    interval : lower and upper end of the 80 % interval of the run's time over the time itself; None for measured time
        that ratios change.
    """

    entries: dict[str, ProfileEntry]
    hardware: Hardware | None
    find: Callable[[str], Hardware] | None = None
    touched: set[str] = field(default_factory=set)
    growth: float = 1.0
    trace: Trace | None = None
    interval: tuple[float, float] | None = None

    def time_s(self, names: Names = ()) -> float:
        """Return the time of some entries, or of all [s]."""
        return math.fsum(entry.time_s for name, entry in self.entries.items() if not names or name in names)

    def set_time(self, name: str, time_s: float) -> None:
        """Give an entry a new time [s]."""
        self.entries[name] = dataclasses.replace(self.entries[name], time_s=time_s)

    def predicted_s(self, op: Operator, step: Step) -> float:
        """Return the predicted time of one call, as the profile would show it [s]."""
        if self.hardware is None:
            raise step.error(f"a {step.kind!r} step needs a machine.", "Name it with --on.")
        return profiled_time(predict(op, self.hardware), self.hardware)

    def operator(self, name: str, step: Step) -> Operator:
        """Return the operator of an entry."""
        op = self.entries[name].op
        if op is None:
            raise step.error(
                f"the operator of {name!r} is not known, so its new time cannot be predicted.",
                "Give it an [[operators]] table, or use kind = 'scale' with a speedup.",
            )
        return op


def apply_step(step: Step, targets: Names, run: Run) -> tuple[Names, str]:
    """Apply a step to a run; return the entries that replace its targets, and the basis of their new time."""
    return _KINDS[step.kind](step, targets, run)


def _scale(step: Step, targets: Names, run: Run) -> tuple[Names, str]:
    time_s = run.time_s(targets)
    if step.new_time_s is not None:
        if step.new_time_s and not time_s:
            raise step.error("its targets take no time, so its new_time has no speedup.", "Remove the step.")
        factor, basis = (step.new_time_s / time_s if time_s else 0.0), "new time in the scenario"
    else:
        assert step.speedup is not None
        factor, basis = 1.0 / step.speedup, "speedup in the scenario"
    for name in targets:
        run.set_time(name, run.entries[name].time_s * factor)
    return targets, basis


def _change_operators(change: Callable[[Operator], Operator], step: Step, targets: Names, run: Run) -> str:
    """Change the operators of some entries, and scale their times by the ratio of the predictions."""
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


def _dtype(step: Step, targets: Names, run: Run) -> tuple[Names, str]:
    return targets, _change_operators(lambda op: op.changed(dtype=step.dtype), step, targets, run)


def _algorithm(step: Step, targets: Names, run: Run) -> tuple[Names, str]:
    """Take another algorithm: by the operator's own dimension, else by the two predicted times of its problem."""
    own = {name: _has_algorithm(run.operator(name, step), step) for name in targets}
    bases = [_change_algorithm(name, step, run) for name in targets if not own[name]]
    if by_dimension := tuple(name for name in targets if own[name]):
        change = _change_operators(lambda op: op.changed(algorithm=step.algorithm), step, by_dimension, run)
        bases.append(change)
    return targets, ", ".join(dict.fromkeys(bases))


def _has_algorithm(op: Operator, step: Step) -> bool:
    """Return whether an operator itself has an algorithm, and the step names no other one to start from."""
    allowed = op.dimensions().get("algorithm", {}).get("allowed", ())
    return step.algorithm in allowed and step.instead_of in ("", getattr(op, "algorithm", ""))


def _change_algorithm(name: str, step: Step, run: Run) -> str:
    """Scale the time of an entry by the ratio of two algorithms' predicted times."""
    if run.hardware is None:
        raise step.error(f"a {step.kind!r} step needs a machine.", "Name it with --on.")
    try:
        ratio = time_ratio(run.operator(name, step), run.hardware, step.algorithm, step.instead_of)
    except UsageError as error:
        raise step.error(f"{name!r}: {error.message}", error.remedy) from None
    run.set_time(name, run.entries[name].time_s * ratio)
    return f"predicted times of the two algorithms on {run.hardware.name}"


def _batch(step: Step, targets: Names, run: Run) -> tuple[Names, str]:
    """Scale the work of every target; the time of a target without a known operator grows by the factor.

    The number of launches and of fetched values does not change: those gaps of a traced run keep their time.
    """
    assert step.factor is not None
    factor = step.factor
    fixed = set(step.resolve(step.fixed, run.entries)) if step.fixed else set()
    fixed |= {name for name in targets if name == LAUNCH_GAPS or name.startswith(SYNC_GAPS)}
    growing = tuple(name for name in targets if name not in fixed)
    predicted = tuple(name for name in growing if run.entries[name].op is not None and run.hardware is not None)
    if predicted:
        _change_operators(lambda op: _with_batch(op, factor), step, predicted, run)
    for name in growing:
        if name not in predicted:
            run.set_time(name, run.entries[name].time_s * factor)
    run.growth *= factor
    basis = f"ratio of the predictions for {len(predicted)} entries" if predicted else ""
    rest = f"in proportion for {len(growing) - len(predicted)}" if len(growing) > len(predicted) else ""
    return targets, ", ".join(part for part in (basis, rest) if part)


def _with_batch(op: Operator, factor: float) -> Operator:
    """Return an operator on ``factor`` times as many items: rows of a product, sequences, images or rows."""
    dimension = next((name for name in _BATCH_DIMENSIONS if name in op.dimensions()), "")
    if isinstance(op, Memcpy):
        dimension = "bytes"
    if op.op == "gemm" and getattr(op, "batch", 1) == 1:
        dimension = "m"
    if not dimension:
        raise UsageError(f"{op.op} has no dimension that grows with the batch.", remedy="Name it in fixed.")
    return op.changed(**{dimension: max(1, round(getattr(op, dimension) * factor))})


def _checkpoint(step: Step, targets: Names, run: Run) -> tuple[Names, str]:
    """Compute the targets a second time in the backward pass, instead of keeping their activations."""
    name = f"recomputation ({step.name})"
    run.entries[name] = ProfileEntry(name, step.share * run.time_s(targets))
    return (*targets, name), f"{100 * step.share:g} % of the targets' time added"


def _fuse(step: Step, targets: Names, run: Run) -> tuple[Names, str]:
    """Replace several entries by one."""
    if step.name in run.entries and step.name not in targets:
        raise step.error(f"{step.name!r} is the name of another entry of the profile.", "Rename the step.")
    before_s = run.time_s(targets)
    if step.speedup is not None:
        after_s, basis = before_s / step.speedup, "speedup in the scenario"
    else:
        operators = [run.operator(name, step) for name in targets]
        if run.hardware is None:
            raise step.error("a 'fuse' step without a speedup needs a machine.", "Name it with --on.")
        try:
            fusion = fuse_operators(operators, run.hardware, times_s=[run.entries[name].time_s for name in targets])
        except UsageError as error:
            raise step.error(error.message, error.remedy) from None
        after_s, basis = fusion.fused_time_s, f"{fusion.verdict}: {fusion.reason}"
    if run.trace is not None:
        run.trace = run.trace.fused(targets, step.name)
    for name in targets:
        del run.entries[name]
    run.entries[step.name] = ProfileEntry(step.name, after_s)
    return (step.name,), basis


def _remove(step: Step, targets: Names, run: Run) -> tuple[Names, str]:
    for name in targets:
        run.set_time(name, 0.0)
    return targets, "removed"


def _move(step: Step, targets: Names, run: Run) -> tuple[Names, str]:
    """Move entries to another machine, as `perfmodel.investment.move.move_entries` does."""
    if run.hardware is None or run.find is None:
        raise step.error("a 'hardware' step needs the machine of the profile.", "Name it with --on.")
    try:
        target = run.find(step.hardware)
    except UsageError as error:
        raise step.error(error.message, error.remedy) from None
    source, known = run.hardware, set(run.entries)
    moved = move_entries(run.entries, targets, (source, target), run.trace)
    gaps = "gaps of the GPU unchanged" if run.trace is None else "time line replayed with the same host"
    run.entries, run.trace, run.hardware = dict(moved.entries), moved.trace, target
    run.interval = _combined(run.interval, moved.interval)
    new = tuple(name for name in run.entries if name not in known)
    return (*targets, *new), f"from {source.name} to {target.name} (see `perfmodel project`); {gaps}"


def _combined(before: tuple[float, float] | None, step: tuple[float, float]) -> tuple[float, float]:
    """Return the interval after one more move: independent deviations of the logarithm add up in quadrature."""
    logs = [math.hypot(*(math.log(ends[side]) for ends in (before or (1.0, 1.0), step))) for side in (0, 1)]
    return math.exp(-logs[0]), math.exp(logs[1])


_KINDS: Mapping[str, Callable[[Step, Names, Run], tuple[Names, str]]] = {
    "scale": _scale,
    "dtype": _dtype,
    "algorithm": _algorithm,
    "hardware": _move,
    "batch": _batch,
    "checkpoint": _checkpoint,
    "fuse": _fuse,
    "remove": _remove,
}
