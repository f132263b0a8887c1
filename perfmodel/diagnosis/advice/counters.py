"""Advice from hardware counters: memory accesses that waste sectors, and warps that wait."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping

from perfmodel.core.dtypes import DTYPE_BYTES
from perfmodel.core.kernel_name import function_of
from perfmodel.core.vocabulary import Dimension
from perfmodel.diagnosis.advice.suggest import suggest
from perfmodel.diagnosis.counters import coalescing, ideal_sectors_per_request, useful_warps
from perfmodel.diagnosis.decompose import dimension_of
from perfmodel.diagnosis.limits import Limit
from perfmodel.diagnosis.measured_run import MeasuredRun
from perfmodel.diagnosis.result import Advice
from perfmodel.profile import effort
from perfmodel.profile.profile import REGISTERS

#: accesses that waste a smaller share of the moved sectors than this are not worth a change
_WASTEFUL = 0.5
#: a kernel may lack parallelism if its warps wait for more than this share of the time, or if it has less than this
#: share of the warps that fit
_STALLED, _OCCUPIED = 0.7, 0.5
#: assumed size of an element where the profile does not tell it [B]; wider elements need more sectors
_ELEMENT_BYTES = 4.0
_COUNTER = "l1tex__t_{what}_pipe_lsu_mem_global_op_{op}.sum"


def counter_advice(run: MeasuredRun) -> Iterator[Advice | None]:
    """Yield advice for entries with counters of Nsight Compute."""
    functions = Counter(function_of(limit.entry.name) for limit in run.limits.values())
    for limit in run.limits.values():
        if limit.entry.metrics:
            # Candidates are told apart by their names, as instances of one template are by their arguments.
            function = function_of(limit.entry.name)
            name = function if functions[function] == 1 else limit.entry.name
            yield _coalesce(run, limit, name)
            yield _occupancy(run, limit, name)


def wasted_share(metrics: Mapping[str, float], element_bytes: float = _ELEMENT_BYTES) -> float:
    """Return the share of the sectors of global loads and stores that coalesced accesses would not move.

    For loads and for stores that is sectors x (1 - coalescing), see `perfmodel.diagnosis.counters.coalescing`; 0
    where the profile has no such counters.

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


def _above_bound_s(limit: Limit) -> float:
    """Return how much of an entry's time lies above its bound [s]; all of it where the bound is unknown."""
    return limit.entry.time_s - (limit.attainable_time_s or 0.0)


def _element_bytes(limit: Limit) -> float:
    return DTYPE_BYTES[limit.entry.op.dtype] if limit.entry.op is not None else _ELEMENT_BYTES


def _wasted_s(limit: Limit) -> float:
    """Return how much time coalesced accesses would save at most [s]; 0 where that is not worth a change."""
    wasted = wasted_share(limit.entry.metrics, _element_bytes(limit))
    if wasted < _WASTEFUL or dimension_of(limit.limiter) == Dimension.COMPUTE:
        return 0.0
    return min(wasted * limit.entry.time_s, _above_bound_s(limit))


def _coalesce(run: MeasuredRun, limit: Limit, name: str) -> Advice | None:
    """Return the advice to let neighbouring threads access neighbouring elements."""
    entry, metrics, saved_s = limit.entry, limit.entry.metrics, _wasted_s(limit)
    if not saved_s:
        return None
    size = _element_bytes(limit)
    worst = max(metrics.get("load_sectors_per_request", 0.0), metrics.get("store_sectors_per_request", 0.0))
    wasted = 100 * wasted_share(metrics, size)
    return suggest(
        run,
        effort.COALESCE,
        Dimension.MEMORY,
        name=f"coalesce {name}",
        text="let neighbouring threads access neighbouring elements; where reads and writes need different orders, go "
        "through a tile in shared memory",
        targets=(entry.name,),
        saved_s=saved_s,
        basis=f"{worst:.3g} sectors per request, where {ideal_sectors_per_request(size):.3g} suffice for elements of "
        f"{size:.0f} B: {wasted:.0f} % of the sectors are wasted, and at most this share of the time",
    )


def _occupancy(run: MeasuredRun, limit: Limit, name: str) -> Advice | None:
    """Return the advice to have more warps that can issue; only where a bound limits the possible saving.

    Sectors that are moved for nothing take their time however many warps wait for them: what coalesced accesses would
    save is no time of missing warps.
    """
    entry, metrics = limit.entry, limit.entry.metrics
    occupancy, stalled = metrics.get("achieved_occupancy"), metrics.get("stall_fraction")
    has_few_warps = occupancy is not None and occupancy < _OCCUPIED
    is_stalled = stalled is not None and stalled > _STALLED
    if limit.attainable_time_s is None or not (has_few_warps or is_stalled):
        return None
    computes = dimension_of(limit.limiter) == Dimension.COMPUTE
    wasted_s = _wasted_s(limit)
    apart = " that wasted sectors do not explain" if wasted_s else ""
    return suggest(
        run,
        effort.OCCUPANCY,
        Dimension.COMPUTE if computes else Dimension.MEMORY,
        name=f"occupancy of {name}",
        text="increase the number of warps that can issue: fewer registers, less shared memory per block, smaller "
        "blocks, more independent work per thread; more resident warps alone do not help if all of them wait",
        targets=(entry.name,),
        saved_s=_above_bound_s(limit) - wasted_s,
        basis=f"{'; '.join(_warp_readings(metrics))}; the saving is an upper limit, the time above the bound{apart}",
    )


def _warp_readings(metrics: Mapping[str, float]) -> list[str]:
    """Return what the counters say about a kernel's warps."""
    texts = []
    occupancy, stalled = metrics.get("achieved_occupancy"), metrics.get("stall_fraction")
    warps = metrics.get("active_warps_per_scheduler")
    if occupancy is not None:
        texts.append(f"{100 * occupancy:.0f} % of the warps are resident")
    if stalled is not None and warps:
        texts.append(f"{useful_warps(warps, stalled):.3g} of {warps:.3g} warps per scheduler can issue")
    reasons = {key.removeprefix("stalled_on_"): value for key, value in metrics.items() if "stalled_on_" in key}
    if reasons:
        most = max(reasons, key=lambda key: reasons[key])
        texts.append(f"the most frequent stall is {most.replace('_', ' ')} ({100 * reasons[most]:.0f} %)")
    if metrics.get(REGISTERS):
        texts.append(f"{metrics[REGISTERS]:.0f} registers per thread")
    return texts
