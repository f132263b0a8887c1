"""Rules about figures that nothing is computed from or compared with: whether any machine can have them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from perfmodel.core.units import format_binary, format_si
from perfmodel.hardware_catalog.lint._draft import Draft, Finding
from perfmodel.prediction.latency.power import PROCESS_ENERGY
from perfmodel.prediction.topology import MOST_IN_A_HOST


class Range(NamedTuple):
    """What a figure may be, from its least to its most, in its unit, and why."""

    least: float
    most: float
    unit: str
    why: str


#: dotted key, with "*" for one of its parts -> range. The limits stand well outside the machines of the catalog
RANGES = {
    "chip.sm_count": Range(1, 1024, "", "the largest module in the catalog has 304"),
    "memory.*.copies": Range(1, 8, "", "a line is kept once, or once in each half of the chip"),
    "memory.*.partitions": Range(1, 64, "", "one for each die at most"),
    "memory.l1.capacity_per_sm": Range(8 * 2**10, 2**20, "iB", "SMs of the catalog have 16 to 256 KiB"),
    "memory.registers.capacity_per_sm": Range(32 * 2**10, 2**21, "iB", "SMs of the catalog have 256 to 512 KiB"),
    # a DGX-2 has the most GPUs; NVIDIA states 576 for NVLink 5 (docs.nvidia.com, Base Command Manager, nvlinkinfo)
    "cluster.gpus_per_node": Range(
        1, MOST_IN_A_HOST, "", "no host has more; what a switch joins beyond hosts is domain of a [link]"
    ),
    "link.*.domain": Range(2, 576, "", "NVLink 5 joins that many"),
    "link.*.latency": Range(
        0.1e-6, 10e-3, "s", "NCCL takes 3 to 9 us a step, processes over a host's memory up to 1 ms"
    ),
    "cluster.alpha": Range(0.5e-6, 1e-3, "s", "published networks take 6 to 119 us a step"),
    "cluster.nic_efficiency": Range(0.05, 1, "", "it is the share that large messages reach, usually 0.85"),
    "cluster.oversubscription": Range(1, 64, "", "1 is a full fat tree"),
    "cluster.deviation": Range(0.005, 3, "", "it is that of a logarithm: 0.1 is about 10 %"),
    "cluster.host_memory": Range(1e9, 16e12, "B", "it is the host's memory for one device"),
}
#: how vendors write what a compute capability or design is
_CAPABILITIES = {
    "NVIDIA": (r"\d{1,2}\.\d", 'CUDA\'s, as "9.0"'),
    "AMD": (r"gfx\d{1,3}[0-9a-f]", 'LLVM\'s name of the design, as "gfx942"'),
}
#: the most that 2:4 sparsity gains over the dense peak; some units gain less (fp4 of the B300, 18 over 13.5 PFLOP/s)
_SPARSE = 2.0


def check_ranges(draft: Draft) -> Iterator[Finding]:
    """Find figures outside what any machine has; what other rules say of a figure they say better."""
    for key, value in _figures(draft):
        for pattern, allowed in RANGES.items():
            if not re.fullmatch(re.escape(pattern).replace(r"\*", r"[^.]+"), key):
                continue
            if not allowed.least <= value <= allowed.most:
                found, least, most = (_shown(number, allowed.unit) for number in (value, allowed.least, allowed.most))
                message = f"found {found}, allowed are {least} to {most}: {allowed.why}."
                yield draft.finding(key, "error", "implausible-figure", message)


def _figures(draft: Draft) -> Iterator[tuple[str, float]]:
    """Yield key and value of quantities, and of plain numbers that `RANGES` has."""
    spec = draft.spec
    if spec.kind == "gpu":
        yield from draft.values.items()
        yield "chip.sm_count", spec.chip.sm_count or 1
    for name, level in spec.memory.items():
        yield f"memory.{name}.copies", level.copies
        yield f"memory.{name}.partitions", level.partitions
    for name, link in spec.link.items():
        yield f"link.{name}.domain", link.domain or 2
    if spec.cluster is not None:
        for name in ("gpus_per_node", "nic_efficiency", "oversubscription", "deviation"):
            value = getattr(spec.cluster, name)
            if value is not None:
                yield f"cluster.{name}", value


def _shown(value: float, unit: str) -> str:
    if unit == "iB":
        return format_binary(value)
    return format_si(value, unit) if unit else f"{value:g}"


def check_capability(draft: Draft) -> Iterator[Finding]:
    """Find a compute capability that its vendor does not write so: no rule and no default finds the machine by it."""
    text, (pattern, words) = draft.spec.compute_capability, _CAPABILITIES.get(draft.spec.vendor, ("", ""))
    if draft.spec.kind == "gpu" and text and pattern and not re.fullmatch(pattern, text):
        message = f"found {text!r}, which is none of {draft.spec.vendor}'s. Write {words}, or leave it out."
        yield draft.finding("compute_capability", "error", "bad-compute-capability", message)


def check_process(draft: Draft) -> Iterator[Finding]:
    """Find a process whose energy is not known: limits of power are then those of TSMC 4N, without a word."""
    process = draft.spec.chip.process
    known = {*PROCESS_ENERGY, *(other.spec.chip.process for other in draft.catalog)} - {""}
    if draft.spec.kind == "gpu" and process and process not in known:
        message = f"found {process!r}: its power counts as that of TSMC 4N. Known are {', '.join(sorted(known))}."
        yield draft.finding("chip.process", "warning", "unknown-process", message)


def check_sparse(draft: Draft) -> Iterator[Finding]:
    """Find a figure with 2:4 sparsity that is below the dense peak or above twice it."""
    for engine, dtype, _ in draft.rates():
        key = f"peak.{engine}.{dtype}"
        dense, sparse = draft.values.get(key), draft.values.get(f"{key}.sparse_2to4")
        if dense and sparse and not 0.98 <= sparse / dense <= 1.02 * _SPARSE:
            found, beside = format_si(sparse, "FLOP/s"), format_si(dense, "FLOP/s")
            message = f"found {found} beside the dense {beside}: it is one to two times that."
            yield draft.finding(f"{key}.sparse_2to4", "warning", "sparse-differs", message)
