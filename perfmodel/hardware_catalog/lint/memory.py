"""Rules about memory levels: bandwidths, capacities, shared memory."""

from __future__ import annotations

import math
from collections.abc import Iterator

from perfmodel.core.units import format_binary, format_si
from perfmodel.hardware_catalog.lint._compare import DOUBTFUL, ROUNDING, TOLERANCE, deviation, near, unit_slip
from perfmodel.hardware_catalog.lint._draft import Draft, Finding, quantities
from perfmodel.hardware_catalog.lint._product import FigureNames, compare_with_product
from perfmodel.hardware_catalog.lint.peaks import PAIRS
from perfmodel.hardware_catalog.schema import MemorySpec

#: shared memory per SM [KiB] by compute capability. Source: CUDA C++ Programming Guide 13, Compute Capabilities
SHARED_KIB = {
    "6.0": 64,
    "6.1": 96,
    "7.0": 96,
    "7.5": 64,
    "8.0": 164,
    "8.6": 100,
    "8.7": 164,
    "8.9": 100,
    "9.0": 228,
    "10.0": 228,
    "10.3": 228,
    "11.0": 228,
    "12.0": 100,
}
#: L2 of the full die [MiB]; no product with the compute capability has all of it. Source: NVIDIA A100 whitepaper v1.0
FULL_DIE_L2_MIB = {"8.0": 48}
#: L2 of the full die [MiB] by product; other products do have 60 MiB. Source: NVIDIA H100 whitepaper v1.04
FULL_DIE_L2_OF_PRODUCT = {"h100-sxm5-80gb": 60, "h100-pcie-80gb": 60}
#: L2 [MiB] that a memory controller of 32 bits of GDDR carries at most, by compute capability; products may have less.
#: Source: NVIDIA GP104, TU102, GA102 (512 KiB) and Ada whitepapers (96 MiB for the 12 of AD102); GB202 has 128 for 16
L2_PER_CONTROLLER_MIB = {"6.1": 0.25, "7.5": 0.5, "8.6": 0.5, "8.9": 8.0, "12.0": 8.0}
#: GiB per 32 bits of a GDDR bus, clamshell included. Source: JEDEC JESD250 (GDDR6), JESD239 (GDDR7)
CHIP_GIB = (0.5, 1, 1.5, 2, 3, 4, 6)
#: the unit of a bandwidth, and the codes of one that is rounded up or another than the product's
_NAMES = FigureNames("B/s", "rounded-up-bandwidth", "bandwidth-differs")
MAIN_BANDWIDTHS = (5e9, 50e12)
MAIN_CAPACITIES = (2.0**30, 2.0**43)
#: what a cache of a whole device may hold [B]; known are 512 KiB to 127 MiB of L2 on GPUs, 64 to 256 MiB behind it, and
#: up to 1.1 GiB of L3 on a server's CPU
CACHE_CAPACITIES = {"l2": (2.0**17, 2.0**30), "llc": (2.0**20, 2.0**31), "l3": (2.0**19, 2.0**33)}


def check_bandwidths(draft: Draft) -> Iterator[Finding]:
    """Compare each level's bandwidth with the known product and with the arithmetic."""
    for name, level in draft.spec.memory.items():
        key = f"memory.{name}.bandwidth"
        value = draft.values.get(key)
        if value is None or value <= 0:
            continue
        found = compare_with_product(draft, key, value, _NAMES, _explain) or _by_arithmetic(draft, name, level, value)
        if found is None and name == "hbm" and not MAIN_BANDWIDTHS[0] <= value <= MAIN_BANDWIDTHS[1]:
            found = draft.finding(
                key, "error", "implausible-figure", f"{_rate(value)} is not the bandwidth of a memory. Check GB and TB."
            )
        if found:
            yield found
    yield from _bus(draft)


def _by_arithmetic(draft: Draft, name: str, level: MemorySpec, value: float) -> Finding | None:
    """Compare with bus width x transfers x clock / 8, or bytes per clock x clock."""
    key = f"memory.{name}.bandwidth"
    memory_clock = draft.values.get(f"memory.{name}.memory_clock")
    core_clock = memory_clock or draft.values.get("chip.vector_clock")
    per_clock = level.bytes_per_clock or (level.bytes_per_clock_per_sm or 0) * (draft.spec.chip.sm_count or 0)
    if level.bus_width_bits and memory_clock:
        transfers = level.transfers_per_clock or 2
        expected = level.bus_width_bits * transfers * memory_clock / 8
        product = f"{level.bus_width_bits:g} bit x {transfers:g} x {format_si(memory_clock, 'Hz')} / 8"
    elif per_clock and core_clock:
        expected = per_clock * core_clock
        product = f"{per_clock:g} B/clk x {format_si(core_clock, 'Hz')}"
    else:
        return None
    if near(value, expected):
        return None
    code, hint = _explain(draft, key, value, expected, "bandwidth-arithmetic")
    message = f"found {_rate(value)}, {product} = {_rate(expected)} ({deviation(value, expected)}). {hint}"
    return draft.finding(key, "error", code, message)


def _explain(draft: Draft, key: str, value: float, expected: float, default: str) -> tuple[str, str]:
    """Return the code of the mistake that explains ``value`` instead of ``expected``, and a remedy."""
    ratio = value / expected
    if unit_slip(ratio):
        return "unit-1000x", "Check the prefix: GB/s, TB/s."
    if near(ratio, 8, 0.03):
        return "bits-for-bytes", "Divide by 8: bandwidths are in bytes."
    if near(ratio, 2, 0.015) and draft.twin and draft.twin.spec.name in PAIRS:
        return "pair-for-device", "That is the board or module with two devices; this file describes one."
    own = draft.known(key)
    if own and near(value, own):
        return default, "The figure is right for the product; check the factors that it is computed from."
    # a figure of the same chip may be rounded (2000 for 2039); that of another chip has to match
    for tolerance, relatives in ((0.02, draft.family()), (TOLERANCE, draft.others())):
        for other in relatives:
            theirs = other.values.get(key)
            if theirs and near(value, theirs, tolerance) and not near(theirs, expected, tolerance):
                return "other-product-bandwidth", f"That is the bandwidth of {other.spec.name} ({_rate(theirs)})."
    if TOLERANCE < ratio - 1 <= DOUBTFUL:
        return "rounded-up-bandwidth", "Rounded up, or that of another bus width; write the exact figure."
    return default, "Take bus width x transfers x clock of this product."


def _bus(draft: Draft) -> Iterator[Finding]:
    """Compare bus widths and memory clocks with the known product."""
    if draft.twin is None:
        return
    for name, level in draft.spec.memory.items():
        known = draft.twin.spec.memory.get(name)
        wide = known.bus_width_bits if known else None
        if level.bus_width_bits and wide and level.bus_width_bits != wide:
            yield draft.finding(
                f"memory.{name}.bus_width_bits",
                "error",
                "bus-width-differs",
                f"found {level.bus_width_bits:g} bit, {draft.twin.spec.name} has {wide:g}.",
            )
        key = f"memory.{name}.memory_clock"
        clock, usual = draft.values.get(key), draft.twin.values.get(key)
        if clock and usual and not near(clock, usual):
            code = "unit-1000x" if unit_slip(clock / usual) else "clock-differs"
            message = f"found {format_si(clock, 'Hz')}, {draft.twin.spec.name} has {format_si(usual, 'Hz')}."
            yield draft.finding(key, "error", code, message)


def check_capacities(draft: Draft) -> Iterator[Finding]:
    """Compare the capacities with the known product, the bus width and the full die."""
    for name in draft.spec.memory:
        key = f"memory.{name}.capacity"
        value = draft.values.get(key)
        if value is None or value <= 0:
            continue
        main = name in ("hbm", "dram")
        text = str(quantities(draft.spec)[key].text)
        if main and text.rstrip().endswith("GB"):
            message = f"{text!r} is {format_binary(value)}; memory chips have GiB. Write GiB if the vendor means GiB."
            yield draft.finding(key, "info", "capacity-gb-gib", message)
        if main:
            yield from _main_capacity(draft, key, value)
        elif name == "l2":
            yield from list(_l2(draft, key, value)) or _l2_of_controllers(draft, key, value)
        least, most = CACHE_CAPACITIES.get(name, (0.0, math.inf))
        if not least <= value <= most and not (draft.twin and draft.known(key)):
            message = f"{format_binary(value)} is not the capacity of a cache. Check KiB, MiB and GiB."
            yield draft.finding(key, "error", "unit-1000x", message)
    yield from _shared(draft)


def _main_capacity(draft: Draft, key: str, value: float) -> Iterator[Finding]:
    known = draft.known(key)
    if not MAIN_CAPACITIES[0] <= value <= MAIN_CAPACITIES[1]:
        code = "unit-1000x" if known is None or unit_slip(value / known) else "implausible-figure"
        message = f"{format_binary(value)} is not the capacity of a memory. Check MB, GB and TB."
        yield draft.finding(key, "error", code, message)
    # GB instead of GiB, and the part that ECC uses, are within 10 %
    elif known and draft.twin and not near(value, known, 0.1):
        pair = draft.twin.spec.name in PAIRS and near(value / known, 2, 0.1)
        same = [o.spec.name for o in draft.family() if near(value, o.values.get(key, 0.0), 0.01)]
        hint = f" That is the capacity of {', '.join(same)}." if same else ""
        message = f"found {format_binary(value)}, {draft.twin.spec.name} has {format_binary(known)}.{hint}"
        yield draft.finding(key, "error", "pair-for-device" if pair else "capacity-differs", message)
    level = draft.spec.memory[key.split(".")[1]]
    if level.technology.upper().startswith("GDDR") and level.bus_width_bits:
        per_chip = value / (level.bus_width_bits / 32)
        # try both units, since GB instead of GiB is another mistake
        if not any(near(per_chip, size * unit, 0.01) for size in CHIP_GIB for unit in (2.0**30, 1e9)):
            message = (
                f"{format_binary(value)} / {level.bus_width_bits / 32:g} chips of 32 bit = "
                f"{format_binary(per_chip)} per chip, a size that does not exist."
            )
            yield draft.finding(key, "error", "capacity-bus-mismatch", message)


def _l2(draft: Draft, key: str, value: float) -> Iterator[Finding]:
    known = draft.known(key)
    if known and near(value, known, 0.06):  # MB instead of MiB
        return
    product = draft.twin.spec.name if draft.twin else ""
    full = FULL_DIE_L2_OF_PRODUCT.get(product, FULL_DIE_L2_MIB.get(draft.spec.compute_capability))
    if full and near(value, full * 2.0**20, 0.06):
        has = f"; {product} has {format_binary(known)}" if known else ""
        message = f"{format_binary(value)} is the L2 of the full die{has}. Write the part that the product has enabled."
        yield draft.finding(key, "error", "full-die-l2", message)
    elif known:
        message = f"found {format_binary(value)}, {product} has {format_binary(known)}.{_which_cache(draft, value)}"
        yield draft.finding(key, "error", "l2-differs", message)


def _l2_of_controllers(draft: Draft, key: str, value: float) -> Iterator[Finding]:
    """Find an L2 that the controllers of the bus do not carry, as that of the full die behind a part of its bus."""
    most, memory = L2_PER_CONTROLLER_MIB.get(draft.spec.compute_capability), draft.spec.memory.get("hbm")
    if not (most and memory and memory.bus_width_bits and memory.technology.upper().startswith("GDDR")):
        return
    controllers = memory.bus_width_bits / 32
    if value > controllers * most * 2.0**20 * (1 + ROUNDING):
        message = (
            f"{format_binary(value)} is above {controllers:g} memory controllers of 32 bit x {most:g} MiB = "
            f"{format_binary(controllers * most * 2.0**20)}. Is it the L2 of another product of the die?"
        )
        yield draft.finding(key, "error", "l2-above-controllers", message)


def _which_cache(draft: Draft, value: float) -> str:
    """Return what else has this capacity, in words."""
    sm_count = draft.spec.chip.sm_count or 0
    registers = draft.values.get("memory.registers.capacity_per_sm", 0.0) * sm_count
    if registers and near(value, registers, 0.06):
        return " That is the register file of all SMs."
    same = [o.spec.name for o in draft.others() if near(value, o.values.get("memory.l2.capacity", 0.0), 0.001)]
    return f" That is the L2 of {', '.join(same[:3])}." if same else ""


def _shared(draft: Draft) -> Iterator[Finding]:
    key = "memory.shared.capacity_per_sm"
    value, expected = draft.values.get(key), SHARED_KIB.get(draft.spec.compute_capability)
    if value and expected and not near(value, expected * 1024, 0.001):
        yield draft.finding(
            key,
            "error",
            "shared-memory-differs",
            f"found {format_binary(value)} per SM, compute capability {draft.spec.compute_capability} has "
            f"{expected} KiB. The L1 and shared memory together are more, one block's limit is less.",
        )


def _rate(value: float) -> str:
    return format_si(value, "B/s")
