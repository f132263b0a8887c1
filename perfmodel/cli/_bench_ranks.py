"""Collectives among several ranks: starts them, or joins those of torchrun or srun; rank 0 writes the record."""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from perfmodel.cli._bench import Session, record_context, settings_of
from perfmodel.cli._bench_collectives import check_gpus, check_ranks, collectives
from perfmodel.cli._bench_files import claimed
from perfmodel.cli._device import base_machine, described_cpu, warn_if_busy
from perfmodel.cli._output import Destination, abandon_stdout, status
from perfmodel.core.units import format_count, format_si
from perfmodel.core.vocabulary import CacheState, Timing
from perfmodel.errors import PerfModelError, UnavailableError, UsageError

if TYPE_CHECKING:
    from perfmodel.core.hardware import Hardware
    from perfmodel.kernels.device import Device
    from perfmodel.kernels.distributed.group import Group
    from perfmodel.measure.benchmark.jobs import Job
    from perfmodel.measure.benchmark.resume import EarlierRun
    from perfmodel.operators import Operator


@dataclass(frozen=True)
class RanksRequest:
    """One command line, as every rank receives it; it can be pickled.

    Attributes
    ----------
    words : operators and their dimensions.
    num_gpus : ranks.
    device : "cpu", "cuda", or None for GPUs where there are some.
    on : the machine of ``--on``.
    rule : time limit, shortest time [s], and the error of the mean to reach; None for the usual ones.
    seed, keep_samples : of the record.
    timeout_s : how long a rank waits for the others [s].
    resume, overwrite : what to do with an existing record.
    destination : where rank 0 writes.
    quiet : whether it does so without a word, also on a link that it measures first.
    """

    words: tuple[str, ...]
    num_gpus: int
    device: str | None
    on: tuple[str, ...]
    rule: tuple[float | None, float | None, float | None]
    seed: int
    keep_samples: bool
    timeout_s: float
    resume: bool
    overwrite: bool
    destination: Destination
    quiet: bool = False


def run_request(request: RanksRequest) -> int:
    """Measure the collectives of a request and return the exit code.

    Raises
    ------
    UsageError
        When an operator is not a collective, or the number of ranks is impossible.
    UnavailableError
        When there are too few GPUs, or a rank fails.
    KeyboardInterrupt
        On Ctrl-C, after saying how many rows are kept.
    """
    # before torch is imported: it prints a stack for a connection that breaks, and more for an exchange of NCCL that
    # fails; one line explains both
    os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "FATAL")
    from perfmodel.kernels.device import open_device
    from perfmodel.kernels.distributed.job import job_rank
    from perfmodel.kernels.distributed.launch import launch

    check_ranks(request.num_gpus, request.timeout_s)
    operators = collectives(request.words, request.num_gpus)
    settings_of(None, *request.rule)  # a wrong one is an error of this process, not of every rank
    device = open_device(request.device)
    if job_rank() is not None:
        return rank_main(request)
    if device.kind == "cuda":
        check_gpus(request.num_gpus)
    with claimed(request.destination, resume=request.resume, overwrite=request.overwrite):
        try:
            return launch(request.num_gpus, launched_rank, [request])
        except UnavailableError as error:
            raise _with_rows(error, request) from None
        except KeyboardInterrupt:
            if (kept := _kept(request)) is not None and not request.quiet:
                path = request.destination.path
                status(f"{kept} of {len(operators)} rows are measured and kept in {path}; --resume measures the others")
            raise


def _kept(request: RanksRequest) -> int | None:
    """Return the number of rows in the record of a request that ended early; None where it has no such record."""
    from perfmodel.measure.benchmark.resume import read_earlier

    path = request.destination.path
    if path is not None and request.destination.renderer.name == "json":
        with contextlib.suppress(PerfModelError):
            earlier = read_earlier(path)
            return len(earlier.rows) if earlier else None
    return None


def _with_rows(error: UnavailableError, request: RanksRequest) -> UnavailableError:
    """Return the error of some ranks with the number of rows that are finished: rank 0 may not be able to tell it."""
    kept = None if request.quiet else _kept(request)
    if kept is None:
        return error
    rows = format_count(kept, "row is", "rows are")
    remedy = f"{error.remedy} --resume measures the other rows.".strip()
    return UnavailableError(f"{error.message.rstrip('.')}; {rows} in {request.destination.path}.", remedy=remedy)


def launched_rank(request: RanksRequest) -> int:
    """Run one rank that `launch` started: an error of perfmodel is one message of rank 0, and a code."""
    try:
        return rank_main(request, claims=False)
    except UnavailableError:
        raise  # the launcher has to end the other ranks
    except PerfModelError as error:
        return _explained(error)
    except OSError as error:
        if request.destination.path is not None:
            raise
        abandon_stdout()  # all is measured when rank 0 writes to it
        if isinstance(error, BrokenPipeError):  # the reader closed the pipe (`| head`)
            return 0
        status(f"perfmodel: the operating system reports: {error.strerror or error}.")
        return 2


def _explained(error: PerfModelError) -> int:
    from perfmodel.kernels.distributed.job import job_rank

    job = job_rank()
    if job is not None and job.rank == 0:
        status(f"perfmodel: {error}")
    return 2


def rank_main(request: RanksRequest, *, claims: bool = True) -> int:
    """Join the group, measure every collective, and write the record after each row on rank 0.

    ``claims`` says whether rank 0 claims the file and tells what became of it; where `launch` started the ranks, the
    process that asked does.
    """
    from perfmodel.kernels.device import open_device
    from perfmodel.kernels.distributed.group import joined
    from perfmodel.kernels.distributed.job import job_rank

    device, job = open_device(request.device), job_rank()
    assert job is not None
    with joined(job, device.kind, request.num_gpus, request.timeout_s) as group, group.watched():
        session = _session(request, group, device)
        if group.rank:
            _follow(session, group)
            return 0
        if not claims:
            return _lead(session, group, request.destination, quiet=request.quiet, tells=False)
        with claimed(request.destination, resume=request.resume, overwrite=request.overwrite):
            return _lead(session, group, request.destination, quiet=request.quiet, tells=True)


def _follow(session: Session, group: Group) -> None:
    from perfmodel.measure.collectives.ranks import run_collectives

    for _ in run_collectives(session.jobs, group, session.device, session.machine, session.settings):
        pass


def _lead(session: Session, group: Group, destination: Destination, *, quiet: bool, tells: bool) -> int:
    """Measure as rank 0, which writes; ``tells`` says whether it says what is left where the run ends early."""
    from perfmodel.core.report import report
    from perfmodel.measure.benchmark.runner import collect
    from perfmodel.measure.collectives.ranks import run_collectives

    def keep(rows: list[dict[str, Any]]) -> None:
        if destination.path is not None:
            destination.write(report(session.record(rows)), quiet=True)

    running = run_collectives(session.jobs, group, session.device, session.machine, session.settings)
    rows, stopped = collect(running, keep)
    record = session.record(rows)
    if record.values:
        destination.write(report(record), quiet=quiet or stopped is not None)
    if stopped:
        if tells:
            status(f"{len(record.values)} of {session.planned} rows are measured and kept")
        raise stopped
    sys.stdout.flush()
    return 0


def _session(request: RanksRequest, group: Group, device: Device) -> Session:
    """Return the run of one rank. All ranks have the same jobs; only rank 0 reads and writes files."""
    from perfmodel.measure.benchmark.resume import read_earlier
    from perfmodel.measure.telemetry.nvml import NoTelemetry, open_telemetry

    operators = collectives(request.words, request.num_gpus)
    limit, shortest, error = request.rule
    settings = settings_of(
        None, limit, shortest, error,
        cache=CacheState.WARM, seed=request.seed, timing=Timing.KERNEL, keep_samples=request.keep_samples,
    )  # fmt: skip
    warning = warn_if_busy() if group.rank == 0 else ""
    earlier = read_earlier(request.destination.path) if request.resume and request.destination.path else None
    machine = compared_machine(request.on, group, device, earlier, quiet=request.quiet)
    ranks = rank_facts(group)
    jobs = planned(placed(operators, machine, len(ranks["ranks_by_host"])), machine, group.backend)
    telemetry = open_telemetry(device) if group.rank == 0 else NoTelemetry()
    facts = {**record_context(device, machine, telemetry, settings, None), "ranks": ranks}
    before: Sequence[Mapping[str, Any]] = ()
    if earlier:
        earlier.check_same(facts)
        jobs, before, facts = earlier.remaining(jobs), earlier.rows, earlier.continued(facts)
        if group.rank == 0:
            status(f"resuming {earlier.place}: {len(before)} rows are measured, {len(jobs)} remain")
    notes = tuple(filter(None, (warning,)))
    return Session(device, machine, settings, telemetry, jobs, before, facts, notes)


def placed(operators: Sequence[Operator], machine: Hardware, hosts: int) -> list[Operator]:
    """Return some collectives with the nodes that their ranks are on, which is what their rows are judged as.

    Processes of CPUs keep what they state: their link is measured between the very hosts.

    Raises
    ------
    UsageError
        When an operator states other nodes than the hosts of its ranks.
    """
    from perfmodel.prediction.topology import nodes_of

    found: list[Operator] = []
    for op in operators:
        params = op.params()
        nodes, stated = nodes_of(hosts, machine, params["num_gpus"]), params.get("nodes")
        if machine.kind == "gpu" and stated is None and nodes is not None:
            op = op.changed(nodes=nodes)
        elif machine.kind == "gpu" and stated is not None and stated != (nodes or 1):
            raise UsageError(
                f"nodes={stated}, and the ranks are on {format_count(hosts, 'host')}.",
                place=op.op,
                remedy="Leave nodes out: the ranks say where they are.",
            )
        found.append(op)
    return found


def planned(operators: Sequence[Operator], machine: Hardware, backend: str) -> list[Job]:
    """Return the jobs of some collectives; the library of their predictions is the backend."""
    from perfmodel.kernels.registry import Kernel
    from perfmodel.measure.benchmark.jobs import Job
    from perfmodel.prediction.predict import predict

    return [
        Job(
            op, Kernel(op.op, op.op, backend, _in_a_group), predict(op, machine, cache=CacheState.WARM, library=backend)
        )
        for op in operators
    ]


def _in_a_group(op: Any, inputs: Mapping[str, Any]) -> Any:
    raise UsageError(f"{op.op} runs in a group of ranks.", remedy="Add --num-gpus 2, say.")


def rank_facts(group: Group) -> dict[str, Any]:
    """Return size and backend of the group, its hosts by the hash of their names, and torch's version."""
    import platform

    from perfmodel.measure.machine_facts import hashed, installed

    hosts = Counter(group.gather(hashed(platform.node())))
    return {"size": group.size, "backend": group.backend, "ranks_by_host": dict(hosts), "torch": installed("torch")}


def compared_machine(
    on: Sequence[str], group: Group, device: Device, earlier: EarlierRun | None, *, quiet: bool = False
) -> Hardware:
    """Return the machine to compare with: of the earlier record, of ``--on``, by the GPU's name, or this CPU.

    Where it has no link between ranks, every rank takes part in measuring one, and gets the same; rank 0 says what came
    of it, unless ``quiet``.

    Raises
    ------
    UsageError
        When ``--on`` and the earlier record name different machines.
    UnavailableError
        When nothing is known about this CPU.
    """
    from perfmodel.cli import _bench
    from perfmodel.prediction.topology import PEER_LINKS

    if earlier:
        return _bench.compared_machine(device, on, (), earlier)
    machine = base_machine(device, on) or described_cpu()
    if machine is None:
        raise UnavailableError("the clock of this CPU is unknown.", remedy="Calibrate it and pass the file to --on.")
    if any(link.name in PEER_LINKS for link in machine.links):
        return machine
    return _with_measured_link(machine, group, device, quiet=quiet)


def _with_measured_link(machine: Hardware, group: Group, device: Device, *, quiet: bool) -> Hardware:
    """Return a machine with the link between the ranks, which all of them measure now."""
    from perfmodel.measure.collectives.links import probe, with_link
    from perfmodel.measure.machine_facts import now_utc
    from perfmodel.prediction.topology import PROCESS_LINK

    begin = time.monotonic()
    fit = probe(group, device)
    if group.rank == 0 and not quiet:
        took, step, rate = (
            format_si(value, unit, 3)
            for value, unit in ((time.monotonic() - begin, "s"), (fit.alpha_s, "s"), (fit.beta_bytes_per_s, "B/s"))
        )
        status(
            "the machine's specification has no link between ranks: measured it first, which took "
            f"{took} ({step} a step, the shorter one of all_reduce and send_recv; {rate}, "
            f"{100 * fit.error:.0f} % off its messages)"
        )
    source = f"{group.backend}, {group.size} processes of this machine, {now_utc()[:10]}"
    return with_link(machine, PROCESS_LINK, fit, source)
