"""Metrics of Nsight Compute: its units in SI, and the metric names behind the labels of its details page."""

from __future__ import annotations

import re

_PREFIXES = {"": 1.0, "n": 1e-9, "u": 1e-6, "m": 1e-3, "K": 1e3, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15}
#: words that take a decimal prefix ("Kbyte" is 1000 bytes according to the documentation of Nsight Compute)
_WORDS = re.compile(
    r"([numKkMGTP]?)(bytes?|B|seconds?|sec|s|[hH][zZ]|cycles?|inst|sectors?|requests?|warps?|ops?|flop)"
)

#: label on the details page -> metric behind it, from the section files that come with Nsight Compute
_LABELS = {
    "Duration": "gpu__time_duration.sum",
    "Elapsed Cycles": "sm__cycles_elapsed.max",
    "SM Frequency": "sm__cycles_elapsed.avg.per_second",
    "Compute (SM) Throughput": "sm__throughput.avg.pct_of_peak_sustained_elapsed",
    "SOL SM": "sm__throughput.avg.pct_of_peak_sustained_elapsed",
    "SM [%]": "sm__throughput.avg.pct_of_peak_sustained_elapsed",
    "Memory [%]": "gpu__compute_memory_throughput.avg.pct_of_peak_sustained_elapsed",
    "DRAM Throughput": "gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed",
    "L1/TEX Hit Rate": "l1tex__t_sector_hit_rate.pct",
    "L2 Hit Rate": "lts__t_sector_hit_rate.pct",
    "Achieved Occupancy": "sm__warps_active.avg.pct_of_peak_sustained_active",
    "Theoretical Occupancy": "sm__maximum_warps_per_active_cycle_pct",
    "Achieved Active Warps Per SM": "sm__warps_active.avg.per_cycle_active",
    "Active Warps Per Scheduler": "smsp__warps_active.avg.per_cycle_active",
    "Eligible Warps Per Scheduler": "smsp__warps_eligible.avg.per_cycle_active",
    "Warp Cycles Per Issued Instruction": "smsp__average_warp_latency_per_inst_issued.ratio",
    "Avg. Active Threads Per Warp": "smsp__thread_inst_executed_per_inst_executed.ratio",
    "Registers Per Thread": "launch__registers_per_thread",
}
_PERCENT = {"Memory Throughput": "gpu__compute_memory_throughput.avg.pct_of_peak_sustained_elapsed"}
_RATE = {"Memory Throughput": "dram__bytes.sum.per_second"}


def unit_scale(unit: str) -> float:
    """Return the SI value of a unit or of a quotient of two units; 1 for an unknown one.

    >>> unit_scale("Gbyte/second"), unit_scale("usecond"), unit_scale("cycle/second"), unit_scale("%")
    (1000000000.0, 1e-06, 1.0, 1.0)
    """
    numerator, _, denominator = unit.strip().partition("/")
    return _scale(numerator) / _scale(denominator)


def _scale(word: str) -> float:
    match = _WORDS.fullmatch(word.strip())
    return _PREFIXES[match.group(1)] if match else 1.0


def metric_name(written: str, unit: str) -> str:
    """Return the name of the metric behind a label of the details page; other names stay as they are.

    >>> metric_name("Duration", "us"), metric_name("dram__bytes.sum", "byte")
    ('gpu__time_duration.sum', 'dram__bytes.sum')
    """
    by_unit = _PERCENT if unit.strip() == "%" else _RATE if "/" in unit else {}
    return by_unit.get(written) or _LABELS.get(written, written)
