"""What a scenario makes of a profiled run: the total after each step, what is left to gain, and doubtful claims."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from dataclasses import dataclass, field

from perfmodel import storage
from perfmodel.core.hardware import Hardware
from perfmodel.core.report import Reportable
from perfmodel.core.units import format_si
from perfmodel.diagnosis.diagnose import wall_time
from perfmodel.diagnosis.limits import limit
from perfmodel.diagnosis.ranks.job import Job
from perfmodel.diagnosis.ranks.pace import lateness, pace_notes
from perfmodel.investment.amdahl import amdahl_limit
from perfmodel.investment.move import Trace
from perfmodel.investment.roi import Baseline
from perfmodel.investment.scenario import Scenario, Step, no_such_entry
from perfmodel.investment.steps import Run, apply_step
from perfmodel.investment.verdict import CLAIM_TOLERANCE, contradicts
from perfmodel.profile.profile import Profile


@dataclass(frozen=True)
class StepResult:
    """One step of a scenario; the attributes are the keys of the JSON rows.

    Attributes
    ----------
    step, name, kind, targets : number from 1, and the step as the scenario states it.
    time_before_s, time_after_s : total time of the targets [s].
    total_time_s, time_saved_s : time of the run after this step, and what the step saves [s]; negative if it adds time.
    step_speedup, speedup : by this step alone, and by all steps so far, in time per item of the run's work.
    throughput_per_s : items per second, or None if the scenario does not state the items of a run.
    bottleneck, bottleneck_fraction : the longest entry that is left, and its share.
    max_further_speedup : if that entry took no time: 1 / (1 - share), Amdahl 1967.
    max_overall_speedup : if everything that a step has touched so far took no time; infinite where that is the whole
        run. A change of the batch touches nothing.
    flags : what contradicts the profile or the machine's limit.
    basis : where the new time comes from.
    total_low_s, total_high_s : 80 % interval of the run's time after this step [s], from the first move to another
        machine on; None where it is measured time that a ratio changes.
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
    total_low_s: float | None = None
    total_high_s: float | None = None


@dataclass(frozen=True)
class WhatIf(Reportable):
    """The steps of a scenario, applied one after the other to a profile.

    Attributes
    ----------
    steps : what each of them makes of the run.
    profile, scenario, hardware : what was asked for.
    notes : sentences for people.
    ranks : ranks of the job of which the profile sets the pace; 0 for a run of its own.
    """

    steps: tuple[StepResult, ...]
    profile: Profile
    scenario: Scenario
    hardware: Hardware | None
    notes: tuple[str, ...] = field(default_factory=tuple)
    ranks: int = 0


def what_if(
    profile: Profile,
    scenario: Scenario,
    hardware: Hardware | None = None,
    *,
    find: Callable[[str], Hardware] | None = None,
    job: Job | None = None,
) -> WhatIf:
    """Return the run after each step of a scenario.

    Each step acts on what the steps before it left. ``scale`` divides the time of its targets by the speedup.
    ``dtype``, ``algorithm`` and ``batch`` change the targets' operators and multiply the measured time by the ratio of
    the predictions, new over old, so that a model error that both share cancels. ``fuse`` replaces its targets by one
    entry (`perfmodel.diagnosis.fusion`), ``hardware`` moves its targets to another machine
    (`perfmodel.investment.move.move_entries`), which the steps after it then run on, ``checkpoint`` adds the time of
    its targets once more, ``remove`` takes them out.

    Parameters
    ----------
    profile : the measured run. Steps change the wall time of one with a time line (`perfmodel.diagnosis.wall`), in
        which overlapping work counts once and the gaps of the GPU are entries.
    scenario : the steps.
    hardware : the machine, for predictions and limits; without it only steps that state their speedup work.
    find : returns the machine with a name, for ``hardware`` steps.
    job : the ranks of which the profile is the one that sets the pace (`perfmodel.diagnosis.ranks.pace`): a step
        changes the job as it changes that rank. Where no entry has the time in which the others wait for it, one is
        added.

    Raises
    ------
    UsageError, or InputFileError for a scenario from a file
        If the profile has no time, a target names no entry, or a new time cannot be predicted.
    """
    measured = profile
    profile = wall_time(profile, hardware)
    trace = Trace.of(measured, profile)
    if job is not None:
        profile, _ = lateness(job, profile)
    begin_s = Baseline.of(profile, None, None).total_s
    run = Run({entry.name: entry for entry in profile.entries}, hardware, find, trace=trace)
    for name, (op, calls) in (scenario.operators or {}).items():
        if name not in run.entries:
            raise scenario.error(*no_such_entry(name, list(run.entries)))
        run.entries[name] = dataclasses.replace(run.entries[name], op=op, calls=run.entries[name].calls or calls)
    results = [_result(step, number, run, begin_s, scenario) for number, step in enumerate(scenario.steps, start=1)]
    notes = (*(pace_notes(job) if job is not None else ()), *_moved(results[-1]), *_notes(scenario, hardware, profile))
    return WhatIf(tuple(results), profile, scenario, hardware, notes, len(job.ranks) if job is not None else 0)


def _result(step: Step, number: int, run: Run, begin_s: float, scenario: Scenario) -> StepResult:
    """Apply one step, and return its result."""
    targets = step.resolve(step.targets, run.entries)
    targets_s, before_s, growth = run.time_s(targets), run.time_s(), run.growth
    flags = _beyond_limit(step, targets, run)
    replaced_by, basis = apply_step(step, targets, run)
    # what a larger batch makes longer is not made faster by it
    run.touched |= set(replaced_by) if step.kind != "batch" else set()
    untouched_s = math.fsum(entry.time_s for name, entry in run.entries.items() if name not in run.touched)
    after_s = run.time_s()
    longest = max(run.entries.values(), key=lambda entry: entry.time_s)
    share = min(longest.time_s / after_s, 1.0) if after_s else 0.0
    alone = before_s / growth / (after_s / run.growth) if after_s else math.inf
    low_s, high_s = (end * after_s for end in run.interval) if run.interval else (None, None)
    return StepResult(
        step=number,
        name=step.name,
        kind=step.kind,
        targets=targets,
        time_before_s=targets_s,
        time_after_s=math.fsum(run.entries[name].time_s for name in replaced_by),
        total_time_s=after_s,
        time_saved_s=before_s - after_s,
        step_speedup=alone,
        speedup=begin_s / (after_s / run.growth) if after_s else math.inf,
        throughput_per_s=scenario.items * run.growth / after_s if scenario.items and after_s else None,
        bottleneck=longest.name,
        bottleneck_fraction=share,
        max_further_speedup=float(amdahl_limit(share)),
        max_overall_speedup=begin_s * run.growth / untouched_s if untouched_s else math.inf,
        basis=basis,
        flags=(*flags, *claim_flags(step, targets_s, before_s, after_s, alone)),
        total_low_s=low_s,
        total_high_s=high_s,
    )


def _beyond_limit(step: Step, targets: tuple[str, ...], run: Run) -> tuple[str, ...]:
    """Return a flag if a step that only makes its targets faster goes below what the machine allows for them."""
    if step.kind != "scale" or run.hardware is None:
        return ()
    floors = [limit(run.entries[name], run.hardware).floor_time_s for name in targets]
    if None in floors:
        return ()
    floor_s, time_s = math.fsum(floor or 0.0 for floor in floors), run.time_s(targets)
    new_s = step.new_time_s if step.new_time_s is not None else time_s / (step.speedup or 1.0)
    if new_s >= floor_s:
        return ()
    return (
        f"beyond the limit of {run.hardware.name}: {format_si(floor_s, 's')} for these operators, "
        f"at most {time_s / floor_s:.2f}x",
    )


def claim_flags(step: Step, targets_s: float, before_s: float, after_s: float, speedup: float) -> tuple[str, ...]:
    """Return a flag for each claim that contradicts the profile."""
    flags = []
    claimed = step.claimed_total_time_s
    if claimed is not None and contradicts(claimed, after_s):
        flags.append(f"claim contradicts the profile: {format_si(after_s, 's')}, not {format_si(claimed, 's')}")
        if before_s - claimed > (1 - CLAIM_TOLERANCE) * targets_s:
            saved, most = format_si(before_s - claimed, "s"), format_si(targets_s, "s")
            flags.append(f"the claim saves {saved}, and its targets take {most} in total")
    if step.claimed_speedup is not None and contradicts(step.claimed_speedup, speedup):
        flags.append(f"claim contradicts the profile: {speedup:.3f}x, not {step.claimed_speedup:g}x")
    return tuple(flags)


def _moved(last: StepResult) -> tuple[str, ...]:
    """Return the interval of the last total in a sentence, if the run has moved to another machine."""
    if last.total_low_s is None or last.total_high_s is None:
        return ()
    ends = f"{format_si(last.total_low_s, 's', 3)} to {format_si(last.total_high_s, 's', 3)}"
    return (f"The last total lies within {ends} (80 % interval of the move; the other steps are taken as exact).",)


def _notes(scenario: Scenario, hardware: Hardware | None, profile: Profile) -> tuple[str, ...]:
    source = storage.name_of(profile.source) or "the profile"
    notes = [
        f"Each step acts on what the steps before it left of {source} ({format_si(profile.total_time_s, 's')}).",
    ]
    if hardware is None:
        notes.append("No machine is named, so claims are checked against the profile only; pass --on HW for limits.")
    if any(step.kind == "batch" for step in scenario.steps):
        notes.append("Speedups are in time per item, since the batch changes.")
    return (*notes, *profile.notes)
