"""`perfmodel diagnose rank*.json.gz`: the ranks of one job."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING

from perfmodel import storage
from perfmodel.cli._output import Destination, context, save_plot, status
from perfmodel.cli._progress import counted
from perfmodel.errors import InputFileError

if TYPE_CHECKING:
    from perfmodel.core.hardware import Hardware
    from perfmodel.diagnosis.ranks.job import Job
    from perfmodel.diagnosis.ranks.summary import RankSummary


def diagnose_ranks(
    paths: Sequence[str],
    on: Sequence[str] | None,
    whole_trace: bool,
    workers: tuple[int, str],
    plot: str | None,
    destination: Destination,
) -> None:
    """Read the traces of a job's ranks, report where their time goes and who waits for whom.

    ``workers`` is a number of processes and the address of a scheduler.

    Raises
    ------
    InputFileError
        When fewer than two of the files can be read as traces of ranks of one job.
    """
    from perfmodel.core.report import report
    from perfmodel.diagnosis.ranks.job import join
    from perfmodel.workers import executor, mapped

    tasks = [(_for_workers(path), whole_trace) for path in paths]
    with executor(*workers) as pool, counted(len(tasks)) as advance:
        results = list(mapped(read_rank, tasks, pool, advance))
    summaries = [result for result in results if not isinstance(result, str)]
    failed = [result for result in results if isinstance(result, str)]
    _check_visible(paths, results, workers[1])
    if len(summaries) < 2:
        raise InputFileError(
            f"{len(summaries)} of {len(paths)} traces can be read; the ranks of a job need two.",
            place=str(paths[0]),
            remedy=failed[0] if failed else "Give the trace of each rank.",
        )
    for reason in failed:
        status(f"warning: left out: {reason}")
    job = join(summaries, failed)
    machine = _machine(job, on)
    if plot is not None:
        from perfmodel.render.plots.diagnosis.ranks import ranks_plot

        save_plot(ranks_plot(job), plot)
    hardware = [machine.name] if machine else []
    destination.write(
        report(job, hardware=machine, context=context(profiles=[str(p) for p in paths], hardware=hardware))
    )


def read_rank(task: tuple[str, bool]) -> RankSummary | str:
    """Return the summary of one trace, or why it cannot be read; a function of a worker process."""
    from perfmodel.diagnosis.ranks.summary import summarise
    from perfmodel.formats import read_profile

    path, whole_trace = task
    try:
        return summarise(read_profile(path, all_steps=whole_trace))
    except InputFileError as error:
        return str(error)


def _check_visible(paths: Sequence[str], results: Sequence[RankSummary | str], scheduler: str) -> None:
    """Raise an InputFileError where the workers of a cluster lack a file that this machine has."""
    if not scheduler:
        return
    pairs = zip(paths, results, strict=True)
    unseen = [
        path for path, result in pairs if isinstance(result, str) and storage.NO_FILE in result and storage.exists(path)
    ]
    if unseen:
        raise InputFileError(
            f"{len(unseen)} of {len(paths)} traces are on this machine, but a worker of {scheduler} does not see them.",
            place=unseen[0],
            remedy="Put them into a folder that all machines share, or into s3:// or gs://.",
        )


def _for_workers(path: str) -> str:
    """Return a path that holds in another process's folder; an address holds everywhere."""
    return path if storage.is_remote(path) or not storage.exists(path) else os.path.abspath(storage.local(path))


def _machine(job: Job, on: Sequence[str] | None) -> Hardware | None:
    """Return the machine of ``--on``, else the one with the name of the first rank's device."""
    from perfmodel.cli._options import only_machine
    from perfmodel.hardware_catalog import hardware
    from perfmodel.hardware_catalog.find import match_device

    if named := only_machine(on):
        return hardware(named)
    device = job.ranks[0].device
    match = match_device(device) if device else None
    return match.hardware if match else None
