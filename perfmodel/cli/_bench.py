"""What `perfmodel bench` does around the measuring: its machine, its record, its session."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from perfmodel.cli._bench_files import keeper, progress
from perfmodel.cli._device import base_machine, measured_machine, warn_if_busy
from perfmodel.cli._output import Destination, context, status
from perfmodel.errors import UsageError

if TYPE_CHECKING:
    from perfmodel.core.hardware import Hardware
    from perfmodel.core.report import Report
    from perfmodel.errors import UnavailableError
    from perfmodel.kernels.device import Device
    from perfmodel.measure.benchmark.one_kernel import Job
    from perfmodel.measure.benchmark.presets import Preset
    from perfmodel.measure.benchmark.resume import Earlier
    from perfmodel.measure.benchmark.settings import Settings
    from perfmodel.measure.telemetry.nvml import Telemetry
    from perfmodel.operators import Operator

    Rows = Sequence[Mapping[str, Any]]

#: time limit of one kernel for operators that are given by name [s]
_TIME_LIMIT_S = 5.0


@dataclass(frozen=True)
class Wanted:
    """What is to be measured: operators in groups, each with whether only the library's call of each point runs."""

    groups: tuple[tuple[list[Operator], bool], ...]
    preset: Preset | None = None

    @property
    def operators(self) -> list[Operator]:
        """All operators."""
        return [op for operators, _ in self.groups for op in operators]


def wanted_operators(ops: Sequence[str] | None, op: Sequence[str] | None, preset: str | None, device: Device) -> Wanted:
    """Return what to run: the operators that are given, else those of a preset.

    Raises
    ------
    UsageError
        When operators and a preset are both given, or --op several times.
    """
    from perfmodel.measure.benchmark import presets
    from perfmodel.operators.parse import parse_operators

    if op and len(op) > 1:
        raise UsageError(
            "--op names one operator.", place="--op", remedy=f"Write {op[0]} m=... {op[1]} m=... without --op."
        )
    tokens = [*(op or ()), *(ops or ())]
    if tokens and preset:
        raise UsageError("operators and a preset are both given.", remedy="Leave one of them out.")
    if tokens:
        return Wanted(((parse_operators(tokens), False),))
    chosen = presets.preset(preset or "quick", device.kind)
    parsed = ((parse_operators(chosen.words(part, device.cache_bytes)), part.library_only) for part in chosen.parts)
    return Wanted(tuple(parsed), chosen)


def settings_of(
    chosen: Preset | None, time_limit: float | None, min_time: float | None, error: float | None, **others: Any
) -> Settings:
    """Return the settings of a run, from its options and else from its preset."""
    from perfmodel.measure.benchmark.settings import Settings, stopping_rule

    preset_limit = chosen.time_limit_s if chosen else _TIME_LIMIT_S
    limit = preset_limit if time_limit is None else time_limit
    if min_time is None and chosen:
        min_time = min(chosen.min_time_s, limit)
    return Settings(rule=stopping_rule(limit, min_time, error), **others)


def compared_machine(
    device: Device, on: Sequence[str] | None, operators: Sequence[Operator], earlier: Earlier | None
) -> Hardware:
    """Return the machine to compare with: by --on, of the earlier record, by the GPU's name, or this CPU, now.

    Raises
    ------
    UsageError
        When --on names another machine than the earlier record.
    """
    from perfmodel.hardware_catalog.read import parse_spec, to_hardware
    from perfmodel.measure.calibration.calibrate import QUICK

    base = base_machine(device, on) if on or not earlier else None
    if earlier:
        machine = to_hardware(parse_spec(dict(earlier.spec), earlier.place), earlier.place)
        if base and base.name != machine.name:
            raise UsageError(
                f"the record was compared with {machine.name}, not {base.name}.",
                place=earlier.place,
                remedy="Leave --on out, or give another file to -o.",
            )
        return machine
    if base is not None:
        if (base.kind == "cpu") != (device.kind == "cpu"):
            status(f"warning: the kernels run on {device.kind}, and are compared with {base.title}")
        return base
    status("no --on is given: calibrating this CPU first, a few seconds")
    dtypes = ["fp32", *(op.dtype for op in operators if op.preferred_engine == "tensor")]
    return measured_machine(device, None, dtypes, QUICK)[0]


def runnable(wanted: Wanted, machine: Hardware) -> Wanted:
    """Leave out the operators of a preset whose dtype the machine lacks, and say so."""
    from perfmodel.measure.benchmark.runner import split_by_peak

    groups, reasons = [], dict[str, None]()
    for operators, library_only in wanted.groups:
        kept, refused = split_by_peak(operators, machine)
        groups.append((kept, library_only))
        reasons.update(dict.fromkeys(refused))
    for reason in reasons:
        status(f"left out of the preset: {reason}")
    return Wanted(tuple(groups), wanted.preset)


def planned_jobs(
    wanted: Wanted, machine: Hardware, device: Device, kernels: Sequence[str], cache: str
) -> tuple[list[Job], list[str]]:
    """Return every kernel to run, those of a preset once each, and in sentences which the device cannot run."""
    from perfmodel.measure.benchmark.resume import without_repeats
    from perfmodel.measure.benchmark.runner import first_supported, plan, split_supported

    if kernels:  # who names a kernel is told in a row that it cannot run
        return plan(wanted.operators, machine, kernels, cache), []
    jobs: list[Job] = []
    for operators, library_only in wanted.groups:
        made = plan(operators, machine, (), cache)
        jobs.extend(first_supported(made, device) if library_only else made)
    return split_supported(without_repeats(jobs) if wanted.preset else jobs, device)


def record_context(device: Device, machine: Hardware, telemetry: Any, settings: Settings) -> Mapping[str, Any]:
    """Return the context of the record, with the whole specification that was compared with."""
    import tomllib

    from perfmodel.hardware_catalog.detect import detect_cpu
    from perfmodel.hardware_catalog.write import spec_text
    from perfmodel.measure.machine_facts import machine_facts

    facts = machine_facts(device, telemetry)
    facts["machine"]["cpu"] = detect_cpu().model
    if device.kind == "cpu":
        facts["device"]["name"] = facts["machine"]["cpu"]
    return context(
        hardware=[machine.name],
        **facts,
        cache=settings.cache,
        seed=settings.seed,
        time_limit_s=settings.rule.time_limit_s,
        settings=settings.facts(),
        spec=tomllib.loads(spec_text(machine)),
    )


def report_maker(machine: Hardware, facts: Mapping[str, Any], notes: Sequence[str]) -> Callable[[Rows], Report]:
    """Return a function that makes the report of some rows; ``notes`` hold for the whole run."""
    from perfmodel.core.report import Report
    from perfmodel.measure.benchmark.findings import findings
    from perfmodel.measure.benchmark.rows import bench_columns

    title = f"Measured on {facts['device']['name']}, compared with {machine.title}"
    columns = bench_columns()
    return lambda rows: Report("bench", columns, list(rows), facts, (*notes, *findings(rows)), title)


@dataclass(frozen=True)
class Session:
    """A run that is ready to begin.

    Attributes
    ----------
    device, machine, settings, telemetry : what is measured, what it is compared with, how, and what it tells.
    jobs : what is left to measure.
    before : the rows that an earlier run has measured.
    make : makes the report of some rows.
    """

    device: Device
    machine: Hardware
    settings: Settings
    telemetry: Telemetry
    jobs: Sequence[Job]
    before: Rows
    make: Callable[[Rows], Report]

    @property
    def planned(self) -> int:
        """The number of rows when all is done."""
        return len(self.before) + len(self.jobs)

    def measure(
        self, destination: Destination
    ) -> tuple[list[Mapping[str, Any]], KeyboardInterrupt | UnavailableError | None]:
        """Measure what is left and write the result; return all rows, and what cut them short."""
        from perfmodel.measure.benchmark.runner import collect, run

        with progress(len(self.jobs)) as advance:
            rows, stopped = collect(
                run(self.jobs, self.device, self.machine, self.settings, self.telemetry),
                keeper(destination, self.make, advance, self.before),
            )
        everything = [*self.before, *rows]
        destination.write(self.make(everything))
        return everything, stopped


def open_session(
    device: Device,
    on: Sequence[str] | None,
    wanted: Wanted,
    kernels: Sequence[str],
    settings: Settings,
    resumed: Path | None,
) -> Session:
    """Return a run that is ready to begin, going on with the record in ``resumed`` where there is one.

    Raises
    ------
    UsageError
        When the device, the machine, the operators or the kernels do not fit each other or the earlier record.
    """
    from perfmodel.measure.benchmark.resume import read_earlier
    from perfmodel.measure.telemetry.nvml import open_telemetry

    settings.check_for(device)
    earlier = read_earlier(resumed) if resumed else None
    warning = warn_if_busy()
    machine = compared_machine(device, on, wanted.operators, earlier)
    if wanted.preset:
        wanted = runnable(wanted, machine)
    jobs, left_out = planned_jobs(wanted, machine, device, kernels, settings.cache)
    telemetry = open_telemetry(device)
    facts = record_context(device, machine, telemetry, settings)
    before: Rows = ()
    if earlier:
        earlier.check_same(facts)
        jobs, before, facts = earlier.left(jobs), earlier.rows, earlier.continued(facts)
        status(f"going on with {resumed}: {len(before)} rows are there, {len(jobs)} are left")
    return Session(
        device,
        machine,
        settings,
        telemetry,
        jobs,
        before,
        report_maker(machine, facts, (*([warning] if warning else ()), *left_out)),
    )
