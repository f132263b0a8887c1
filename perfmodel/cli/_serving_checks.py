"""Options of `serve` and `search serve` that would have no effect beside others: each is refused with one message."""

from __future__ import annotations

from collections.abc import Iterable

import typer

from perfmodel.errors import UsageError
from perfmodel.serving.points import CONCURRENCY, QPS, REQUESTS

#: parameter of a command -> its option, where the dashes do not tell
_OPTIONS = {"spread": "--length-spread", "utilization": "--memory-utilization"}
#: what only a simulation has
_SIMULATED = (
    "policy", "batch_size", "max_wait", "preemption", "watermark", "replicas", "routing", "prefill_replicas",
    "kv_link", "percentiles", "num_requests", "seed", "spread", "spread_start",
)  # fmt: skip


def given(command: typer.Context, names: Iterable[str]) -> list[str]:
    """Return the options of a command, by the names of its parameters, that stand on the command line."""
    sources = {name: command.get_parameter_source(name) for name in names}
    return [
        _OPTIONS.get(name, f"--{name.replace('_', '-')}")
        for name, source in sources.items()
        if source is not None and source.name == "COMMANDLINE"
    ]


def _refuse(command: typer.Context, names: Iterable[str], reason: str, remedy: str) -> None:
    """Raise a UsageError if an option is given that has no effect."""
    found = given(command, names)
    if found:
        verb = "has" if len(found) == 1 else "have"
        raise UsageError(f"{' and '.join(found)} {verb} no effect: {reason}.", remedy=remedy)


def check_serve(
    command: typer.Context, load: str, *, of_file: bool, steady: bool, replicas: int, prefill_replicas: int
) -> None:
    """Raise a UsageError for options of `serve` that the load, the steady state or the fleet makes idle.

    Parameters
    ----------
    command : what was called, with where each parameter came from.
    load : kind of the load.
    of_file : requests come from a file.
    steady : the steady state is asked for.
    replicas, prefill_replicas : deployments that serve.
    """
    one_of_two = len(given(command, ("kv_tokens", "utilization"))) == 2
    for idle, names, reason, remedy in (
        (steady, _SIMULATED, "the steady state has means of equal requests, without a scheduler",
         "Leave out --steady."),
        (load != QPS, ("spacing", "burstiness"), "only requests at a rate have gaps", "Add --qps."),
        (load != CONCURRENCY, ("spread_start",), "only users start", "Add --concurrency."),
        (of_file, ("isl", "osl", "spread"), "the lengths stand in --requests", "Leave out one of them."),
        (load == REQUESTS, ("num_requests", "seed"), "--requests says which requests come, and when",
         "Add --concurrency or --qps to take the lengths of the file alone."),
        (not prefill_replicas, ("kv_link",), "prompts and answers are computed by the same GPUs",
         "Add --prefill-replicas 1, say."),
        (max(replicas, prefill_replicas) == 1, ("routing",), "there is one deployment", "Add --replicas 2, say."),
        (one_of_two, ("utilization",), "--kv-tokens says what the cache holds", "Leave out one of them."),
    ):  # fmt: skip
        if idle:
            _refuse(command, names, reason, remedy)


def check_search(command: typer.Context, *, simulated: bool, machines: Iterable[str], priced: Iterable[str]) -> None:
    """Raise a UsageError for options of `search serve` without effect.

    Parameters
    ----------
    command : what was called.
    simulated : there are objectives, so that loads are simulated.
    machines : catalog's names of the machines that are searched.
    priced : those that have a price of their own.
    """
    if not simulated:
        reason = "without objectives the steady state is used, which has no queue"
        _refuse(command, ("policy", "num_requests", "seed", "spread"), reason, "Add --slo, or leave it out.")
    idle = sorted(set(priced) - set(machines) - {""})
    if idle:
        raise UsageError(f"{', '.join(idle)} has a price and is not searched.", place="--price-per-gpu-hour",
                         remedy=f"Searched: {', '.join(machines)}.")  # fmt: skip
