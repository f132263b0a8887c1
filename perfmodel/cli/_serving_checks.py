"""Options of `serve` and `search serve` that would have no effect beside others: each is refused with one message."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING

import typer

from perfmodel.cli._idle import Idle, given, refuse, refuse_idle
from perfmodel.errors import UsageError
from perfmodel.serving.points import CONCURRENCY, QPS, REQUESTS

if TYPE_CHECKING:
    from perfmodel.cli._serving_input import Spec

#: what only a simulation has
_SIMULATED = (
    "policy", "batch_size", "max_wait", "preemption", "watermark", "conservativeness", "replicas", "routing",
    "prefill_replicas", "kv_link", "percentiles", "num_requests", "seed", "spread_start",
)  # fmt: skip


def check_serve(command: typer.Context, load: str, *, of_file: bool, steady: bool, prefill_replicas: int) -> None:
    """Raise a UsageError for options of `serve` that the load, the steady state or the fleet makes idle.

    Parameters
    ----------
    command : what was called, with where each parameter came from.
    load : kind of the load.
    of_file : requests come from a file.
    steady : the steady state is asked for.
    prefill_replicas : deployments that compute prompts only.
    """
    one_of_two = len(given(command, ("kv_tokens", "utilization"))) == 2
    refuse_idle(command, (
        Idle(steady, _SIMULATED, "the steady state has means, without a simulated scheduler",
             "Leave out --steady."),
        Idle(load != QPS, ("spacing", "burstiness"), "only requests at a rate have gaps", "Add --qps."),
        Idle(load != CONCURRENCY, ("spread_start",), "only users start", "Add --concurrency."),
        Idle(of_file, ("isl", "osl", "spread"), "the lengths stand in --requests", "Leave out one of them."),
        Idle(load == REQUESTS, ("num_requests", "seed"), "--requests says which requests come, and when",
             "Add --concurrency or --qps to take the lengths of the file alone."),
        Idle(not prefill_replicas, ("kv_link",), "prompts and answers are computed by the same GPUs",
             "Add --prefill-replicas 1, say."),
        Idle(one_of_two, ("utilization",), "--kv-tokens says what the cache holds", "Leave out one of them."),
    ))  # fmt: skip


def check_steady(load: str, requests: str | None, timeline: str | None) -> None:
    """Raise a UsageError for a load that has no steady state, and for a time line, which it has not."""
    if load != CONCURRENCY or requests or timeline:
        raise UsageError("the steady state has users, but neither arrivals nor a time line.", place="--steady",
                         remedy="Use --concurrency, without --requests and --timeline.")  # fmt: skip


def check_routing(
    command: typer.Context, load: str, specs: Iterable[Spec], replicas: int, prefill_replicas: int
) -> None:
    """Raise a UsageError for a routing that has no effect on deployments, so many of each, and on their copies."""
    single = max(replicas, prefill_replicas) == 1 and all(spec.parallel.replicas == 1 for spec in specs)
    stay = load == CONCURRENCY and not prefill_replicas
    refuse_idle(command, (
        Idle(single, ("routing",), "there is one deployment", "Add --replicas 2, say."),
        Idle(stay, ("routing",), "users stay with their replica", "Add --qps."),
    ))  # fmt: skip


def check_dispatcher(dispatcher: str, specs: Iterable[Spec]) -> None:
    """Raise a UsageError for a dispatcher that is unknown, or where no copies of the attention share experts."""
    if not dispatcher:
        return
    from perfmodel.operators.routing import Dispatcher

    Dispatcher.parse(dispatcher, place="--dispatcher")
    if not any(spec.parallel.copies_share for spec in specs):
        raise UsageError(
            "no copies of the attention share experts.", place="--dispatcher", remedy="Add --ep and --dp above 1."
        )


def with_overlap(batch_overlap: bool, specs: list[Spec]) -> list[Spec]:
    """Return deployments of which those whose copies share experts run their steps as two halves, if asked for.

    Raises
    ------
    UsageError
        When no copies share experts.
    """
    if not batch_overlap:
        return specs
    if not any(spec.parallel.copies_share for spec in specs):
        raise UsageError(
            "no copies of the attention share experts.", place="--batch-overlap", remedy="Add --ep and --dp above 1."
        )
    return [replace(spec, batch_overlap=spec.parallel.copies_share) for spec in specs]


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
        reason = "without objectives the steady state is used, which simulates no queue"
        refuse(command, ("policy", "num_requests", "seed"), reason, "Add --slo, or leave it out.")
    idle = sorted(set(priced) - set(machines) - {""})
    if idle:
        raise UsageError(f"{', '.join(idle)} has a price and is not searched.", place="--price-per-gpu-hour",
                         remedy=f"Searched: {', '.join(machines)}.")  # fmt: skip
