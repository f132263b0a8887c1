"""A run of `perfmodel bench`: its operators, the machine that it is compared with, and its record."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from perfmodel.cli._bench_files import progress
from perfmodel.cli._device import base_machine, measured_machine, warn_if_busy
from perfmodel.cli._output import Destination, context, status
from perfmodel.errors import UsageError

if TYPE_CHECKING:
    from perfmodel.core.hardware import Hardware
    from perfmodel.core.vocabulary import CacheState
    from perfmodel.errors import UnavailableError
    from perfmodel.kernels.device import Device
    from perfmodel.measure.benchmark.jobs import Job
    from perfmodel.measure.benchmark.presets import Preset
    from perfmodel.measure.benchmark.resume import EarlierRun
    from perfmodel.measure.benchmark.settings import BenchSettings
    from perfmodel.measure.memory_limit import MemoryLimit
    from perfmodel.measure.telemetry.nvml import Telemetry
    from perfmodel.operators import Operator
    from perfmodel.records.schema import Record

    Rows = Sequence[Mapping[str, Any]]

#: time limit of a kernel for operators on the command line [s]
_TIME_LIMIT_S = 5.0


@dataclass(frozen=True)
class Selection:
    """The operators to measure: groups, each with a flag that restricts its operators to the library's kernel.

    ``limit`` is that of the memory which the kernels of a preset may take.
    """

    groups: tuple[tuple[list[Operator], bool], ...]
    preset: Preset | None = None
    limit: MemoryLimit | None = None

    @property
    def operators(self) -> list[Operator]:
        """All operators."""
        return [op for operators, _ in self.groups for op in operators]


def selected_operators(
    ops: Sequence[str] | None, op: Sequence[str] | None, preset: str | None, device: Device
) -> Selection:
    """Return the operators on the command line, or those of a preset.

    Raises
    ------
    UsageError
        When the command line has both operators and a preset, a preset that does not exist, or --op more than once.
    """
    from perfmodel.measure.benchmark import presets
    from perfmodel.operators.parse import parse_operators

    if op and len(op) > 1:
        raise UsageError(
            "--op names one operator.", place="--op", remedy=f"Write {op[0]} m=... {op[1]} m=... without --op."
        )
    tokens = [*(op or ()), *(ops or ())]
    if preset:
        presets.preset(preset, device.kind)  # a name that does not exist is the first thing to correct
    if tokens and preset:
        raise UsageError("operators and a preset exclude each other.", remedy="Remove one of them.")
    if tokens:
        return Selection(((parse_operators(tokens), False),))
    chosen = presets.preset(preset or "quick", device.kind)
    parsed = ((parse_operators(chosen.words(part, device.cache_bytes)), part.library_only) for part in chosen.parts)
    return Selection(tuple(parsed), chosen)


def settings_of(
    chosen: Preset | None, time_limit: float | None, min_time: float | None, error: float | None, **others: Any
) -> BenchSettings:
    """Return the settings of a run from its options; the preset supplies missing ones."""
    from perfmodel.measure.benchmark.settings import BenchSettings, stopping_rule

    preset_limit = chosen.time_limit_s if chosen else _TIME_LIMIT_S
    limit = preset_limit if time_limit is None else time_limit
    if min_time is None and chosen:
        min_time = min(chosen.min_time_s, limit)
    return BenchSettings(rule=stopping_rule(limit, min_time, error), **others)


def compared_machine(
    device: Device, on: Sequence[str] | None, operators: Sequence[Operator], earlier: EarlierRun | None
) -> Hardware:
    """Return the machine to compare with: of --on, of the earlier record, by the GPU's name, or this calibrated CPU.

    Raises
    ------
    UsageError
        When --on and the earlier record name different machines.
    """
    from perfmodel.hardware_catalog.read import parse_spec, to_hardware
    from perfmodel.measure.calibration.plan import QUICK

    base = base_machine(device, on) if on or not earlier else None
    if earlier:
        machine = to_hardware(parse_spec(dict(earlier.spec), earlier.place), earlier.place)
        if base and base.name != machine.name:
            raise UsageError(
                f"the record was compared with {machine.name}, not {base.name}.",
                place=earlier.place,
                remedy="Remove --on, or choose another file for -o.",
            )
        return machine
    if base is not None:
        if (base.kind == "cpu") != (device.kind == "cpu"):
            status(f"warning: the kernels run on {device.kind} but are compared with {base.title}")
        return base
    status("no --on: calibrating this CPU first, which takes a few seconds")
    dtypes = ["fp32", *(op.dtype for op in operators if op.preferred_engine == "tensor")]
    return measured_machine(device, None, dtypes, QUICK).machine


def runnable(selection: Selection, machine: Hardware) -> Selection:
    """Return the selection without operators whose dtype the machine lacks, and report them on stderr."""
    from perfmodel.measure.benchmark.jobs import split_by_peak

    groups, reasons = [], dict[str, None]()
    for operators, library_only in selection.groups:
        kept, refused = split_by_peak(operators, machine)
        groups.append((kept, library_only))
        reasons.update(dict.fromkeys(refused))
    for reason in reasons:
        status(f"not measured: {reason}")
    return Selection(tuple(groups), selection.preset)


def within_limit(
    selection: Selection, device: Device, earlier: EarlierRun | None
) -> tuple[Selection, float | None, str]:
    """Reduce the sizes of a preset to its memory limit; return the selection, the limit [B] and a note about it.

    Operators on the command line keep their sizes and have no limit. A resumed run keeps the limit of its record, which
    determines its sizes.
    """
    from perfmodel.core.units import format_binary
    from perfmodel.measure.benchmark.presets import within_memory
    from perfmodel.measure.memory_limit import MemoryLimit

    if selection.preset is None:
        return selection, None, ""
    limit = MemoryLimit.of(device, selection.preset.most_memory_bytes)
    recorded = earlier.context.get("memory_limit_bytes") if earlier else None
    if recorded:
        limit = dataclasses.replace(limit, limit_bytes=float(recorded))
    reduced = [(*within_memory(operators, limit), library_only) for operators, library_only in selection.groups]
    groups = tuple((operators, library_only) for operators, _, library_only in reduced)
    count = sum(number for _, number, _ in reduced)
    sentence = f"sizes reduced to stay within {format_binary(limit.limit_bytes)} of memory: {count}" if count else ""
    return Selection(groups, selection.preset, limit), limit.limit_bytes, sentence


def planned_jobs(
    selection: Selection,
    machine: Hardware,
    device: Device,
    kernels: Sequence[str],
    cache: CacheState,
    releases: Mapping[str, str],
) -> tuple[list[Job], list[str]]:
    """Return the kernels to run, in a preset each one once, and notes about kernels that the device cannot run.

    They are predicted as those of ``releases``, the releases of their libraries.
    """
    from perfmodel.measure.benchmark.jobs import first_supported, plan, split_supported, without_repeats

    if kernels:  # a kernel of --kernel that cannot run has a row with the reason
        return plan(selection.operators, machine, kernels, cache, releases), []
    jobs: list[Job] = []
    for operators, library_only in selection.groups:
        planned = plan(operators, machine, (), cache, releases)
        jobs.extend(first_supported(planned, device) if library_only else planned)
    if selection.limit and selection.limit.by_kernel:
        jobs = [job for job in jobs if selection.limit.holds(job.op, job.kernel)]
    return split_supported(without_repeats(jobs) if selection.preset else jobs, device)


def record_context(
    device: Device,
    machine: Hardware,
    telemetry: Telemetry,
    settings: BenchSettings,
    memory_limit_bytes: float | None,
    operators: Sequence[Operator] = (),
) -> Mapping[str, Any]:
    """Return the context of the record, which includes the specification of the machine that it is compared with.

    The versions of the libraries of plugins whose kernels compute some operators are among it.
    """
    import tomllib

    from perfmodel.hardware_catalog.detect import detect_cpu
    from perfmodel.hardware_catalog.write import spec_text
    from perfmodel.measure.machine_facts import library_versions, machine_facts

    facts = machine_facts(device, telemetry)
    facts["machine"]["cpu"] = detect_cpu().model
    if device.kind == "cpu":
        facts["device"]["name"] = facts["machine"]["cpu"]
    libraries = library_versions(operators, known=facts["device"])
    return context(
        hardware=[machine.name],
        **facts,
        **({"libraries": libraries} if libraries else {}),
        cache=str(settings.cache),
        seed=settings.seed,
        time_limit_s=settings.rule.time_limit_s,
        settings=settings.facts(),
        memory_limit_bytes=memory_limit_bytes,
        spec=tomllib.loads(spec_text(machine)),
    )


@dataclass(frozen=True)
class Session:
    """A run that is ready to start.

    Attributes
    ----------
    device : the device that is measured.
    machine : the machine that it is compared with.
    settings : how it is measured.
    telemetry : source of clocks, temperature and power.
    jobs : kernels to measure.
    before : rows of the earlier run that is resumed.
    facts : context of the record.
    notes : notes about the whole run.
    """

    device: Device
    machine: Hardware
    settings: BenchSettings
    telemetry: Telemetry
    jobs: Sequence[Job]
    before: Rows
    facts: Mapping[str, Any]
    notes: Sequence[str]

    @property
    def planned(self) -> int:
        """Number of rows of the complete record."""
        return len(self.before) + len(self.jobs)

    def record(self, rows: Rows) -> Record:
        """Return the record of the earlier rows and some new ones; a note says how many are missing."""
        from perfmodel.measure.benchmark.findings import findings
        from perfmodel.records.schema import Record

        rows = [*self.before, *rows]
        title = f"Measured on {self.facts['device']['name']}, compared with {self.machine.title}"
        missing = f"Incomplete: {len(rows)} of {self.planned} rows are measured."
        notes = (*((missing,) if len(rows) < self.planned else ()), *self.notes, *findings(rows))
        return Record("bench", rows, self.facts, notes, title=title)

    def measure(self, destination: Destination) -> tuple[Rows, KeyboardInterrupt | UnavailableError | None]:
        """Measure the jobs and write the record as rows come; return all rows, and the exception that ended the run.

        Writing a record of hundreds of rows takes longer than measuring a row: it is written after a row only where
        that takes a twentieth of the time at most, and at the end. An existing file keeps its content until the first
        row is complete.
        """
        from perfmodel.core.report import report
        from perfmodel.measure.benchmark.runner import Pace, collect, run

        pace = Pace()
        with progress(len(self.jobs)) as advance:

            def keep(rows: list[dict[str, Any]]) -> None:
                if destination.path is not None:
                    pace.call(lambda: destination.write(report(self.record(rows)), quiet=True))
                advance(rows[-1])

            rows, stopped = collect(run(self.jobs, self.device, self.machine, self.settings, self.telemetry), keep)
        record = self.record(rows)
        if record.values or destination.path is None:
            destination.write(report(record))
        else:
            status(f"nothing was measured, so {destination.path} was not written")
        return record.values, stopped


def open_session(
    device: Device,
    on: Sequence[str] | None,
    selection: Selection,
    kernels: Sequence[str],
    settings: BenchSettings,
    resumed: str | None,
) -> Session:
    """Return a run that is ready to start, or that continues the record in the file ``resumed``.

    Raises
    ------
    UsageError
        When device, machine, operators and kernels do not match each other or the earlier record.
    """
    from perfmodel.measure.benchmark.jobs import check_kernels
    from perfmodel.measure.benchmark.resume import read_earlier
    from perfmodel.measure.telemetry.nvml import open_telemetry
    from perfmodel.prediction.implementations import releases_of

    settings.check_for(device)
    check_kernels(selection.operators, kernels)  # before a CPU is calibrated, which takes seconds
    earlier = read_earlier(resumed) if resumed else None
    warning = warn_if_busy()
    machine = compared_machine(device, on, selection.operators, earlier)
    if selection.preset:
        selection = runnable(selection, machine)
    selection, memory_limit_bytes, reduced = within_limit(selection, device, earlier)
    telemetry = open_telemetry(device)
    facts = record_context(device, machine, telemetry, settings, memory_limit_bytes, selection.operators)
    # what predicts the rows is what the record states, so that `validate` of the record says the same
    jobs, left_out = planned_jobs(selection, machine, device, kernels, settings.cache, releases_of(facts))
    before: Rows = ()
    if earlier:
        earlier.check_same(facts)
        jobs, before, facts = earlier.remaining(jobs), earlier.rows, earlier.continued(facts)
        status(f"resuming {resumed}: {len(before)} rows are measured, {len(jobs)} remain")
    notes = tuple(filter(None, (warning, reduced, *left_out)))
    return Session(device, machine, settings, telemetry, jobs, before, facts, notes)
