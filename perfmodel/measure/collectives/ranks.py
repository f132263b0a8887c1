"""Measuring a collective: every rank runs it, the slowest one sets the time, and all stop together."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from perfmodel.core.hardware import Hardware
from perfmodel.core.vocabulary import Timing
from perfmodel.measure.benchmark.jobs import Job
from perfmodel.measure.benchmark.rows import Outcome, build_row
from perfmodel.measure.benchmark.settings import BenchSettings
from perfmodel.measure.timing.stopping_rule import StoppingRule
from perfmodel.measure.timing.timer import TimedCall
from perfmodel.operators.collective import Collective
from perfmodel.records.schema import Status

if TYPE_CHECKING:
    from perfmodel.kernels.device import Device
    from perfmodel.kernels.distributed.exchanges import Exchange
    from perfmodel.kernels.distributed.group import Group

#: calls before the first sample, as nccl-tests has them (github.com/NVIDIA/nccl-tests, README, -w)
WARM_UP_CALLS = 5
#: samples between two decisions whether to go on: agreeing costs a small collective
ROUND = 10
#: a sample has so many calls that it lasts this long [s]: ranks leave the barrier before it some 10 us apart
_SAMPLE_S = 1e-3
_MOST_CALLS = 100


def run_collectives(
    jobs: Sequence[Job], group: Group, device: Device, hardware: Hardware, settings: BenchSettings
) -> Iterator[dict[str, Any]]:
    """Yield the row of each collective; all ranks iterate together.

    Raises
    ------
    UnavailableError
        When a rank does not take part any more.
    """
    for job in jobs:
        outcome = group.run(functools.partial(_outcome, job, group, device, settings.rule))
        yield with_bandwidths(build_row(job, outcome, hardware, settings), job.op)


def with_bandwidths(row: dict[str, Any], op: Any) -> dict[str, Any]:
    """Return a row with the algorithm and the bus bandwidth of nccl-tests [B/s].

    algbw = S / t, busbw = V / t with the bytes V that a rank sends in a ring: 2 S (n - 1) / n for an all-reduce,
    S (n - 1) / n for all-gather, reduce-scatter and all-to-all, S for the others
    (https://github.com/NVIDIA/nccl-tests/blob/master/doc/PERFORMANCE.md).
    """
    assert isinstance(op, Collective)
    measured = row.get("measured_time_s")
    if not measured:
        return row
    return row | {
        "algorithm_bytes_per_s": float(op.bytes) / measured,
        "bus_bytes_per_s": float(op.peer_bytes()) / measured,
    }


def _outcome(job: Job, group: Group, device: Device, rule: StoppingRule) -> Outcome:
    """Check one collective and time it; what fails on one rank is skipped on all."""
    from perfmodel.kernels.distributed.exchanges import exchange, why_not

    assert isinstance(job.op, Collective)
    group.meet()
    reason = why_not(job.op, group)
    if reason:
        return Outcome(Status.SKIPPED, reason)
    prepared, reason = _prepared(lambda: exchange(job.op, group), device)  # type: ignore[arg-type]
    if max(group.slowest([float(prepared is None)])):
        return Outcome(Status.OUT_OF_MEMORY, reason or "another rank has too little memory")
    assert prepared is not None
    wrong = sum(group.gather(not prepared.is_correct()))
    if wrong:
        return Outcome(Status.WRONG, f"the result is wrong on {wrong} of {group.size} ranks", None, False)
    timed = time_exchange(prepared.call, group, device, rule)
    return Outcome(Status.OK, "", timed, True, 0.0, "all elements of every rank")


def _prepared(make: Callable[[], Exchange], device: Device) -> tuple[Exchange | None, str]:
    try:
        return make(), ""
    except Exception as error:
        if not device.is_out_of_memory(error):
            raise
        return None, next(iter(str(error).splitlines()), "")


def time_exchange(call: Callable[[], object], group: Group, device: Device, rule: StoppingRule) -> TimedCall:
    """Return the samples of a collective: in each the mean over its calls, of the rank for which it took longest."""
    for _ in range(WARM_UP_CALLS):
        call()
        device.synchronize()
        group.go_on()
    (once,) = group.slowest([_sample(call, 1, group, device)])
    calls = min(_MOST_CALLS, max(1, round(_SAMPLE_S / max(once, 1e-9))))
    samples: list[float] = []
    begin, reason = time.monotonic(), ""
    while not reason:
        own = [_sample(call, calls, group, device) for _ in range(ROUND)]
        # the same numbers on every rank, so that all of them decide alike
        *slowest, elapsed = group.slowest([*own, time.monotonic() - begin])
        samples += slowest
        reason = rule.reason(samples, elapsed)
    return TimedCall(tuple(samples), reason, Timing.KERNEL, calls)


def _sample(call: Callable[[], object], calls: int, group: Group, device: Device) -> float:
    """Return the time of one call, the mean of some back to back after all ranks met [s]."""
    group.meet()
    watch = device.stopwatch()
    watch.start()
    for _ in range(calls):
        call()
    watch.stop()
    return watch.elapsed_s() / calls
