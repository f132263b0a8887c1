"""FLOP, bytes by memory level, occupancy, coalescing and stalls from hardware counters. Pure arithmetic.

Counters have the names of NVIDIA's Nsight Compute and are in SI units (s, B, 1/s); percentages under the profiler's
names are 0..100. Every derived value is a fraction, a count, or in SI units.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

#: threads of a warp, all of which one memory request serves (CUDA C++ Programming Guide, "SIMT Architecture")
LANES = 32
#: bytes of a sector, the smallest unit that L1 and L2 move (Nsight Compute documentation, "Memory Tables")
SECTOR_BYTES = 32
#: FLOP of one warp-wide tensor instruction on Volta, as NERSC's roofline scripts count it (roofline-on-nvidia-gpus).
#: This holds only for that architecture; on others the FLOP of an instruction depend on its shape
VOLTA_TENSOR_FLOP = 512.0

#: FLOP of one instruction of one thread. Half precision is packed: HADD2, HMUL2 and HFMA2 process two values, as in
#: Nsight Compute's own derived metrics (..._hadd_pred_on_x2, ..._hfma_pred_on_x4).
_VECTOR = {
    "fp64": {"dadd": 1.0, "dmul": 1.0, "dfma": 2.0},
    "fp32": {"fadd": 1.0, "fmul": 1.0, "ffma": 2.0, "fadd2": 2.0, "fmul2": 2.0, "ffma2": 4.0},
    "fp16": {"hadd": 2.0, "hmul": 2.0, "hfma": 4.0},
}
_TENSOR = re.compile(r"sm__ops_path_tensor_src_([a-z0-9_]+?)((?:_dst_[a-z0-9]+)?)((?:_sparsity_(?:on|off))?)\.sum")
#: counters of the duration [s], and of elapsed cycles
_TIMES = ("gpu__time_duration.sum", "gpu__time_duration.avg", "gpu__time_duration.max")
_CYCLES = ("sm__cycles_elapsed.avg", "sm__cycles_elapsed.max", "smsp__cycles_elapsed.avg", "smsp__cycles_elapsed.max")


def ideal_sectors_per_request(element_bytes: float) -> float:
    """Return the sectors that a fully coalesced request of a warp touches.

    Parameters
    ----------
    element_bytes : size of the element that each thread reads or writes [B].

    Returns
    -------
    32 lanes x element size / 32 B, and at least 1: 4 for fp32, 2 for fp16, 1 for bytes.

    >>> ideal_sectors_per_request(4), ideal_sectors_per_request(2), ideal_sectors_per_request(1)
    (4.0, 2.0, 1.0)
    """
    return max(1.0, LANES * element_bytes / SECTOR_BYTES)


def coalescing(sectors_per_request: float, element_bytes: float) -> float:
    """Return the share of the moved sectors that a fully coalesced access would need, at most 1.

    With fewer sectors than the ideal (broadcasts, inactive threads) nothing is wasted, and the share is 1.

    >>> coalescing(3.2, 4), coalescing(32, 4)
    (1.0, 0.125)
    """
    return min(1.0, ideal_sectors_per_request(element_bytes) / max(sectors_per_request, 1e-30))


def useful_warps(warps: float, stall_fraction: float) -> float:
    """Return the warps that can issue: warps x (1 - stall fraction).

    This is Little's law from the scheduler's view: more resident warps help only if not all of them wait.

    >>> round(useful_warps(32, 0.9), 6), round(useful_warps(16, 0.3), 6)
    (3.2, 11.2)
    """
    return warps * (1.0 - min(1.0, max(0.0, stall_fraction)))


def time_s(counters: Mapping[str, float]) -> float | None:
    """Return the duration of a kernel [s], measured or as cycles / (cycles per second); None without such counters."""
    for name in _TIMES:
        if name in counters:
            return counters[name]
    for name in _CYCLES:
        rate = counters.get(f"{name}.per_second", 0.0)
        if name in counters and rate > 0:
            return counters[name] / rate
    return None


def flop_by_engine(counters: Mapping[str, float], compute_capability: str = "") -> dict[str, float]:
    """Return the FLOP of a kernel by data type and engine, for example ``{"fp32_vector": 2e9}``.

    Vector: add + mul + 2 x fma of executed thread instructions with the predicate on. Half precision counts both
    values of packed instructions, so code that uses only one of them is counted double. Tensor:
    ``sm__ops_path_tensor_src_*`` counts operations (a multiply-add is two); a parent counter includes its ``_dst_`` and
    ``_sparsity_`` children, so these are added only where the parent is missing. Compute capability 7.0 lacks these
    counters; there each instruction of the tensor pipe counts as 512 FLOP.

    Sources: Nsight Compute's roofline sections; NERSC roofline-on-nvidia-gpus, ``run.survey``.

    Parameters
    ----------
    counters : name -> value for one launch: ``.sum``, or ``.sum.per_cycle_elapsed`` and the elapsed cycles.
    compute_capability : "7.0" for Volta; other values have no effect.

    Returns
    -------
    Only counted keys: the dict is empty without counters, and a counter of zero gives 0.0.
    """
    flop: dict[str, float] = {}
    for dtype, weights in _VECTOR.items():
        parts = [_vector(counters, op, weight) for op, weight in weights.items()]
        # The fma counter alone covers most of the work; adds and multiplications alone do not.
        if parts[2] is not None:
            flop[f"{dtype}_vector"] = sum(part for part in parts if part is not None)
    flop.update(_tensor(counters))
    pipe = counters.get("sm__inst_executed_pipe_tensor.sum")
    if pipe is not None and compute_capability == "7.0" and not any(key.endswith("_tensor") for key in flop):
        flop["fp16_tensor"] = pipe * VOLTA_TENSOR_FLOP
    return flop


def _vector(counters: Mapping[str, float], op: str, flop_each: float) -> float | None:
    """Return the FLOP of one kind of instruction, or None where the counter is missing."""
    for unit in ("sm", "smsp"):
        stem = f"{unit}__sass_thread_inst_executed_op_{op}_pred_on"
        count = _total(counters, f"{stem}.sum")
        if count is not None:
            return count * flop_each
        # derived__..._x2 and _x4 are already FLOP; the sections give them per cycle.
        for factor in (4, 2):
            derived = counters.get(f"derived__{stem}_x{factor}")
            if derived is not None:
                cycles = _cycles(counters)
                return None if cycles is None else derived * cycles * flop_each / factor
    return None


def _total(counters: Mapping[str, float], name: str) -> float | None:
    """Return a sum, measured or as its rate per elapsed cycle times the cycles; None without such counters."""
    if name in counters:
        return counters[name]
    rate, cycles = counters.get(f"{name}.per_cycle_elapsed"), _cycles(counters)
    return None if rate is None or cycles is None else rate * cycles


def _cycles(counters: Mapping[str, float]) -> float | None:
    """Return the elapsed cycles of a kernel, or None."""
    for name in _CYCLES:
        if name in counters:
            return counters[name]
        rate, time = counters.get(f"{name}.per_second"), time_s(counters)
        if rate is not None and time is not None:
            return rate * time
    return None


def _tensor(counters: Mapping[str, float]) -> dict[str, float]:
    """Return the operations of the tensor cores by source type, without adding a counter to its own children."""
    # source -> destination -> sparsity -> operations
    operations: dict[str, dict[str, dict[str, float]]] = {}
    for name in counters:
        match = _TENSOR.match(name)
        if match is None or name[match.end() :] not in ("", ".per_cycle_elapsed"):
            continue
        value = _total(counters, match.group(0))
        if value is not None:
            source, destination, sparsity = match.groups()
            operations.setdefault(source, {}).setdefault(destination, {})[sparsity] = value
    whole = {
        source: {dst: by[""] if "" in by else sum(by.values()) for dst, by in kinds.items()}
        for source, kinds in operations.items()
    }
    return {f"{source}_tensor": by[""] if "" in by else sum(by.values()) for source, by in whole.items()}


def memory_bytes(counters: Mapping[str, float]) -> dict[str, float]:
    """Return the bytes that a kernel moved at the levels "hbm", "l2" and "l1", for the levels that were counted.

    Device memory: ``dram__bytes.sum``, or read plus write, or the rate times the duration. L2 and L1: bytes, or
    sectors of 32 B. L1 is the sum of global loads and stores where only these were counted.
    """
    moved: dict[str, float] = {}
    parts = [_first(counters, f"dram__bytes_{op}.sum", f"dram__bytes_op_{op}.sum") for op in ("read", "write")]
    hbm_bytes = _first(counters, "dram__bytes.sum")
    hbm_bytes = _sum(parts) if hbm_bytes is None else hbm_bytes
    if hbm_bytes is not None:
        moved["hbm"] = hbm_bytes
    for level, unit in (("l2", "lts"), ("l1", "l1tex")):
        level_bytes = _first(counters, f"{unit}__t_bytes.sum")
        sectors = _first(counters, f"{unit}__t_sectors.sum")
        if level_bytes is None and sectors is None and level == "l1":
            sectors = _sum(
                [_first(counters, f"l1tex__t_sectors_pipe_lsu_mem_global_op_{op}.sum") for op in ("ld", "st")]
            )
        if level_bytes is None and sectors is not None:
            level_bytes = sectors * SECTOR_BYTES
        if level_bytes is not None:
            moved[level] = level_bytes
    return moved


def _first(counters: Mapping[str, float], *names: str) -> float | None:
    """Return the first of some counters that was collected, as a sum or as a rate times the duration; else None."""
    for name in names:
        if name in counters:
            return counters[name]
    time = time_s(counters)
    for name in names:
        if time is not None and f"{name}.per_second" in counters:
            return counters[f"{name}.per_second"] * time
    return None


def _sum(values: list[float | None]) -> float | None:
    """Return the sum, or None if a value is missing."""
    present = [value for value in values if value is not None]
    return sum(present) if len(present) == len(values) else None


#: derived name -> counters that hold it as a percentage, the preferred one first
_FRACTIONS = {
    "achieved_occupancy": ("sm__warps_active.avg.pct_of_peak_sustained_active",),
    "theoretical_occupancy": ("sm__maximum_warps_per_active_cycle_pct",),
    "sm_utilization": ("sm__throughput.avg.pct_of_peak_sustained_elapsed",),
    "memory_utilization": ("gpu__compute_memory_throughput.avg.pct_of_peak_sustained_elapsed",),
    "hbm_utilization": (
        "dram__throughput.avg.pct_of_peak_sustained_elapsed",
        "gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed",
    ),
    "l1_hit_rate": ("l1tex__t_sector_hit_rate.pct",),
    "l2_hit_rate": ("lts__t_sector_hit_rate.pct",),
}
#: derived name -> counters that hold it in its own unit
_AS_IS = {
    "active_warps_per_sm": ("sm__warps_active.avg.per_cycle_active",),
    "active_warps_per_scheduler": ("smsp__warps_active.avg.per_cycle_active",),
    "eligible_warps_per_scheduler": ("smsp__warps_eligible.avg.per_cycle_active",),
    "active_threads_per_warp": ("smsp__thread_inst_executed_per_inst_executed.ratio",),
    "registers_per_thread": ("launch__registers_per_thread",),
    "shared_bytes_per_block": ("launch__shared_mem_per_block",),
    "shared_bank_conflicts": (
        "l1tex__data_bank_conflicts_pipe_lsu_mem_shared.sum",
        "l1tex__data_bank_conflicts_pipe_lsu.sum",
    ),
}
_STALL_SHARE = re.compile(r"smsp__warps?_issue_stalled_(\w+?)_per_warp_active\.pct")
_STALL = re.compile(r"smsp__average_warps?_(?:latency_)?issue_stalled_(\w+?)(?:_per_issue_active)?\.ratio")
_LATENCY = ("smsp__average_warp_latency_per_inst_issued.ratio", "smsp__average_warps_active_per_issue_active.ratio")


def derived(counters: Mapping[str, float]) -> dict[str, float]:
    """Return a kernel's counters in the model's terms, for the counters that were collected.

    Keys: ``achieved_occupancy``, ``theoretical_occupancy``, ``sm_utilization``, ``memory_utilization``,
    ``hbm_utilization``, ``l1_hit_rate``, ``l2_hit_rate`` (fractions); ``load_sectors_per_request``,
    ``store_sectors_per_request`` (global memory; compare `ideal_sectors_per_request`);
    ``active_warps_per_sm``, ``active_warps_per_scheduler``, ``eligible_warps_per_scheduler``; ``stall_fraction``
    (1 - eligible / active warps) and ``useful_warps`` for it; ``stalled_on_REASON``, the share of a warp's
    latency; ``active_threads_per_warp``, ``registers_per_thread``, ``shared_bytes_per_block`` [B],
    ``shared_bank_conflicts`` (a count); ``hbm_bytes``, ``l2_bytes``, ``l1_bytes`` [B].
    """
    values = {f"{level}_bytes": moved for level, moved in memory_bytes(counters).items()}
    for name, sources in _FRACTIONS.items():
        percentage = _first(counters, *sources)
        if percentage is not None:
            values[name] = percentage / 100.0
    for name, sources in _AS_IS.items():
        value = _first(counters, *sources)
        if value is not None:
            values[name] = value
    for name, op in (("load", "ld"), ("store", "st")):
        sectors = counters.get(f"l1tex__t_sectors_pipe_lsu_mem_global_op_{op}.sum")
        requests = counters.get(f"l1tex__t_requests_pipe_lsu_mem_global_op_{op}.sum")
        if sectors is not None and requests:
            values[f"{name}_sectors_per_request"] = sectors / requests
    return values | _stalls(counters, values)


def _stalls(counters: Mapping[str, float], values: Mapping[str, float]) -> dict[str, float]:
    """Return the share of warps that cannot issue, and the shares of the reasons."""
    stalls: dict[str, float] = {}
    active, eligible = values.get("active_warps_per_scheduler"), values.get("eligible_warps_per_scheduler")
    if active and eligible is not None:
        stalls["stall_fraction"] = max(0.0, 1.0 - eligible / active)
        stalls["useful_warps"] = useful_warps(active, stalls["stall_fraction"])
    for name, value in counters.items():
        match = _STALL_SHARE.fullmatch(name)
        if match:
            stalls[f"stalled_on_{match.group(1)}"] = value / 100.0
    latency = _first(counters, *_LATENCY)
    if latency:
        for name, value in counters.items():
            match = _STALL.fullmatch(name)
            # "..._not_issued" is already part of the reason without that suffix.
            if match and not match.group(1).endswith("_not_issued"):
                stalls[f"stalled_on_{match.group(1)}"] = value / latency
    return stalls
