"""What a path of changes makes of a profiled run: the total after each step, what is left to do, and what to doubt."""

from __future__ import annotations

import dataclasses
import math
import os
from dataclasses import dataclass, field

from perfmodel.core.hardware import Hardware
from perfmodel.core.units import format_si
from perfmodel.diagnosis.limits import limit
from perfmodel.errors import UsageError
from perfmodel.investment.scenario import Path, Step
from perfmodel.investment.verdict import CLAIM_TOLERANCE
from perfmodel.investment.what_if_steps import DO, Run
from perfmodel.profile.profile import Profile


@dataclass(frozen=True)
class StepResult:
    """One step of a path; the attributes are the keys of the JSON rows.

    Attributes
    ----------
    step, name, kind, targets : number from 1, and what the path says.
    time_before_s, time_after_s : of the targets together [s].
    total_time_s, time_saved_s : of the run after this step, and what the step saves [s]; negative where it costs time.
    step_speedup, speedup : of this step alone, and of all steps so far, for one item of the run's work: where the batch
        grows, the time for an item counts.
    throughput_per_s : items a second, or None where the path does not say the items of a run.
    bottleneck, bottleneck_fraction : the longest entry that is left, and its share.
    max_further_speedup : if that entry took no time: 1 / (1 - share), Amdahl 1967.
    max_overall_speedup : if everything that a step has touched so far took no time.
    flags : what contradicts the profile or the machine's limit.
    basis : where the new time comes from.
    """

    step: int
    name: str
    kind: str
    targets: tuple[str, ...]
    time_before_s: float
    time_after_s: float
    total_time_s: float
    time_saved_s: float
    step_speedup: float
    speedup: float
    throughput_per_s: float | None
    bottleneck: str
    bottleneck_fraction: float
    max_further_speedup: float
    max_overall_speedup: float
    basis: str
    flags: tuple[str, ...] = ()


@dataclass(frozen=True)
class WhatIf:
    """The steps of a path, done one after the other on a profile."""

    steps: tuple[StepResult, ...]
    profile: Profile
    path: Path
    hardware: Hardware | None
    notes: tuple[str, ...] = field(default_factory=tuple)


def what_if(profile: Profile, path: Path, hardware: Hardware | None = None) -> WhatIf:
    """Return the run after each step of a path.

    Steps act on what the steps before them left. ``scale`` divides the time of its targets by the speedup.
    ``dtype``, ``algorithm`` and ``batch`` change the targets' operators and multiply the measured time by the ratio of
    the predictions, new over old, so that an error of the model that both share drops out. ``fuse`` makes one entry of
    its targets (`perfmodel.diagnosis.fusion`), ``checkpoint`` adds the time of its targets once more, ``remove`` takes
    them out.

    Parameters
    ----------
    profile : the measured run.
    path : the steps.
    hardware : the machine, for predictions and limits; without it only steps that say their speedup work.

    Raises
    ------
    UsageError, or InputFileError for a path from a file
        When the profile has no time, a target names no entry, or a new time cannot be predicted.
    """
    if not profile.total_time_s > 0:
        raise UsageError("the profile has no time.", place=profile.source, remedy="Some entry needs a time above zero.")
    run = Run({entry.name: entry for entry in profile.entries}, hardware)
    for name, (op, calls) in (path.operators or {}).items():
        if name not in run.entries:
            first = path.steps[0]
            first.resolve((name,), run.entries)
        run.entries[name] = dataclasses.replace(run.entries[name], op=op, calls=run.entries[name].calls or calls)
    begin_s, done = run.time_s(), []
    for number, step in enumerate(path.steps, start=1):
        done.append(_step(step, number, run, begin_s, path))
    return WhatIf(tuple(done), profile, path, hardware, _notes(path, hardware, profile))


def _step(step: Step, number: int, run: Run, begin_s: float, path: Path) -> StepResult:
    """Do one step, and say what came of it."""
    targets = step.resolve(step.targets, run.entries)
    before, before_s, grown = run.time_s(targets), run.time_s(), run.grown
    untouched_s = run.time_s() - math.fsum(
        run.entries[n].time_s for n in run.entries if n in run.touched | set(targets)
    )
    flags = _beyond_limit(step, targets, run)
    made, basis = DO[step.kind](step, targets, run)
    run.touched |= set(made) if step.kind != "batch" else set()
    after_s = run.time_s()
    worst = max(run.entries.values(), key=lambda entry: entry.time_s)
    share = worst.time_s / after_s if after_s else 0.0
    alone = before_s / grown / (after_s / run.grown) if after_s else math.inf
    return StepResult(
        step=number,
        name=step.name,
        kind=step.kind,
        targets=targets,
        time_before_s=before,
        time_after_s=math.fsum(run.entries[name].time_s for name in made if name in run.entries),
        total_time_s=after_s,
        time_saved_s=before_s - after_s,
        step_speedup=alone,
        speedup=begin_s / (after_s / run.grown) if after_s else math.inf,
        throughput_per_s=path.items * run.grown / after_s if path.items and after_s else None,
        bottleneck=worst.name,
        bottleneck_fraction=share,
        max_further_speedup=1.0 / (1.0 - share) if share < 1 else math.inf,
        max_overall_speedup=begin_s * grown / untouched_s if untouched_s > 1e-12 * begin_s else math.inf,
        basis=basis,
        flags=(*flags, *_claims(step, before, before_s, after_s, alone)),
    )


def _beyond_limit(step: Step, targets: tuple[str, ...], run: Run) -> tuple[str, ...]:
    """Say where a step that only makes its targets faster goes below what the machine allows for them."""
    if step.kind != "scale" or run.hardware is None:
        return ()
    found = {name: limit(run.entries[name], run.hardware) for name in targets}
    if any(one.floor_time_s is None for one in found.values()):
        return ()
    floor_s, time_s = math.fsum(one.floor_time_s or 0.0 for one in found.values()), run.time_s(targets)
    new_s = step.new_time_s if step.new_time_s is not None else time_s / (step.speedup or 1.0)
    if new_s >= floor_s:
        return ()
    most = f"at most {time_s / floor_s:.2f}x" if floor_s else ""
    return (f"beyond the limit of {run.hardware.name}: {format_si(floor_s, 's')} for these operators, {most}",)


def _claims(step: Step, targets_s: float, before_s: float, after_s: float, speedup: float) -> tuple[str, ...]:
    """Say where what somebody claims contradicts the profile."""
    flags = []
    claimed = step.claimed_total_time_s
    if claimed is not None and abs(claimed - after_s) > CLAIM_TOLERANCE * after_s:
        flags.append(f"claim contradicts the profile: {format_si(after_s, 's')}, not {format_si(claimed, 's')}")
        if before_s - claimed > (1 - CLAIM_TOLERANCE) * targets_s:
            saved, most = format_si(before_s - claimed, "s"), format_si(targets_s, "s")
            flags.append(f"the claim saves {saved}, all that its targets take is {most}")
    if step.claimed_speedup is not None and abs(step.claimed_speedup - speedup) > CLAIM_TOLERANCE * speedup:
        flags.append(f"claim contradicts the profile: {speedup:.3f}x, not {step.claimed_speedup:g}x")
    return tuple(flags)


def _notes(path: Path, hardware: Hardware | None, profile: Profile) -> tuple[str, ...]:
    source = os.path.basename(profile.source) or "the profile"
    said = [
        f"Each step acts on what the steps before it left of {source} ({format_si(profile.total_time_s, 's')}).",
        "Overall at most: if everything that the steps so far touch took no time (Amdahl).",
    ]
    if hardware is None:
        said.append("No machine is named, so claims are checked against the profile only, not against physical limits.")
    if any(step.kind == "batch" for step in path.steps):
        said.append("Speedups are per item: where the batch grows, of the time for one item.")
    return (*said, *profile.notes)
