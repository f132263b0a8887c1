"""Advice from hardware counters: accesses that waste sectors, warps that wait."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from perfmodel.core.dtypes import DTYPE_BYTES
from perfmodel.diagnosis.case import Case
from perfmodel.diagnosis.counters import coalescing, ideal_sectors_per_request, useful_warps
from perfmodel.diagnosis.decompose import COMPUTE, MEMORY
from perfmodel.diagnosis.limits import Limit
from perfmodel.diagnosis.result import Advice
from perfmodel.profile import effort

#: an access of which more than half of the moved sectors is needed is left alone
_WASTEFUL = 0.5
#: a kernel whose warps wait more than this, or with less of its warps than this, may lack parallelism
_STALLED, _OCCUPIED = 0.7, 0.5
#: elements are taken to have 4 B where the profile does not say; wider ones make more sectors normal
_ELEMENT_BYTES = 4.0
_COUNTER = "l1tex__t_{what}_pipe_lsu_mem_global_op_{op}.sum"


def counter_advice(case: Case) -> Iterator[Advice | None]:
    """Yield advice for entries with counters of Nsight Compute."""
    for limit in case.limits.values():
        if limit.entry.metrics:
            yield _coalesce(case, limit)
            yield _occupancy(case, limit)


def wasted_share(metrics: Mapping[str, float], element_bytes: float = _ELEMENT_BYTES) -> float:
    """Return the share of the sectors of global loads and stores that coalesced accesses would not move.

    Of each direction: sectors x (1 - coalescing), see `perfmodel.diagnosis.counters.coalescing`; 0 where they were
    not counted.

    >>> counts = {"l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum": 32.0}
    >>> wasted_share(counts | {"l1tex__t_requests_pipe_lsu_mem_global_op_ld.sum": 1.0})
    0.875
    """
    total, wasted = 0.0, 0.0
    for op in ("ld", "st"):
        sectors = metrics.get(_COUNTER.format(what="sectors", op=op))
        requests = metrics.get(_COUNTER.format(what="requests", op=op))
        if sectors and requests:
            total += sectors
            wasted += sectors * (1.0 - coalescing(sectors / requests, element_bytes))
    return wasted / total if total else 0.0


def _allowed_s(limit: Limit) -> float:
    """Return what physics allows to save of an entry [s]: down to its bound where one is known."""
    return limit.entry.time_s - (limit.attainable_time_s or 0.0)


def _coalesce(case: Case, limit: Limit) -> Advice | None:
    """Return the advice to let neighbouring threads touch neighbouring elements."""
    entry, metrics = limit.entry, limit.entry.metrics
    size = DTYPE_BYTES[entry.op.dtype] if entry.op is not None else _ELEMENT_BYTES
    worst = max(metrics.get("load_sectors_per_request", 0.0), metrics.get("store_sectors_per_request", 0.0))
    wasted = wasted_share(metrics, size)
    if wasted < _WASTEFUL or limit.limiter == "compute":
        return None
    basis = (
        f"{worst:.3g} sectors a request, where {ideal_sectors_per_request(size):.3g} suffice for elements of "
        f"{size:.0f} B: {100 * wasted:.0f} % of the sectors are wasted; at most this share of the time"
    )
    text = (
        "let neighbouring threads touch neighbouring elements; where the other side needs another order, through a "
        "tile in shared memory"
    )
    saved_s = min(wasted * entry.time_s, _allowed_s(limit))
    return case.advise(effort.COALESCE, MEMORY, f"coalesce {entry.name}", text, (entry.name,), saved_s, basis)


def _occupancy(case: Case, limit: Limit) -> Advice | None:
    """Return the advice to have more warps that can issue; only where a bound says what that could bring."""
    entry, metrics = limit.entry, limit.entry.metrics
    occupancy, stalled = metrics.get("achieved_occupancy"), metrics.get("stall_fraction")
    few = occupancy is not None and occupancy < _OCCUPIED
    waiting = stalled is not None and stalled > _STALLED
    if limit.attainable_time_s is None or not (few or waiting):
        return None
    reasons = {key.removeprefix("stalled_on_"): value for key, value in metrics.items() if "stalled_on_" in key}
    words = [f"{100 * occupancy:.0f} % of the warps are resident"] if occupancy is not None else []
    warps = metrics.get("active_warps_per_scheduler")
    if stalled is not None and warps:
        words.append(f"of {warps:.3g} warps a scheduler {useful_warps(warps, stalled):.3g} can issue")
    if reasons:
        most = max(reasons, key=lambda key: reasons[key])
        words.append(f"they wait mostly on {most.replace('_', ' ')} ({100 * reasons[most]:.0f} %)")
    if metrics.get("registers_per_thread"):
        words.append(f"{metrics['registers_per_thread']:.0f} registers a thread")
    text = (
        "give its schedulers warps that can issue: fewer registers, less shared memory a block, smaller blocks, more "
        "independent work a thread; more resident warps alone do not help where all of them wait"
    )
    dimension = COMPUTE if limit.limiter == "compute" else MEMORY
    basis = f"{'; '.join(words)}; at most down to the bound"
    return case.advise(
        effort.OCCUPANCY, dimension, f"occupancy of {entry.name}", text, (entry.name,), _allowed_s(limit), basis
    )
