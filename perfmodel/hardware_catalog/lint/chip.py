"""Rules about the chip: enabled processors, clocks, and facts such as threads per SM."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from perfmodel.core.units import format_si
from perfmodel.hardware_catalog.lint._compare import DOUBTFUL, deviation, near, unit_slip
from perfmodel.hardware_catalog.lint._draft import Draft, Finding

#: SMs of the full die; no product with the compute capability has all of them enabled. Sources: NVIDIA whitepapers P100
#: (GP100 60), V100 (GV100 84), A100 (GA100 128), Ada (AD102 144), H100 (GH100 144); AMD CDNA (128), CDNA 2
#: (112 per GCD) and CDNA 3 (320) white papers
FULL_DIE_SMS = {
    "6.0": 60,
    "7.0": 84,
    "8.0": 128,
    "8.9": 144,
    "9.0": 144,
    "gfx908": 128,
    "gfx90a": 112,
    "gfx942": 320,
}
#: the full AD104, the die of the L4, is in other products. Source: NVIDIA Ada whitepaper v2.1
FULL_DIE_OF_PRODUCT = {"l4": 60}
CLOCKS_HZ = (0.3e9, 6e9)
#: power limits [W]: from below a Jetson Nano's lower mode (5 W) to three times the most in the catalog (1400 W)
POWER_W = (3.0, 4200.0)
#: most resident threads per SM. Source: CUDA C++ Programming Guide 13, Compute Capabilities
THREADS_PER_SM = {
    "6.0": 2048,
    "6.1": 2048,
    "7.0": 2048,
    "7.5": 1024,
    "8.0": 2048,
    "8.6": 1536,
    "8.7": 1536,
    "8.9": 1536,
    "9.0": 2048,
    "10.0": 2048,
    "10.3": 2048,
    "12.0": 1536,
}
#: facts of [chip] that all products with one compute capability share
SHARED_FACTS = (
    *("matrix_instruction", "warp_size", "max_warps_per_sm", "max_threads_per_sm", "max_blocks_per_sm"),
    *("warp_schedulers_per_sm", "exponentials_per_clock_per_sm"),
)
#: facts that every die has for itself
OWN_FACTS = ("process",)


def check_sm_count(draft: Draft) -> Iterator[Finding]:
    """Compare the number of SMs with the known product and with the full die."""
    count = draft.spec.chip.sm_count
    if count is None:
        return
    twin = draft.twin
    known = twin.spec.chip.sm_count if twin else None
    if known == count:
        return
    full = FULL_DIE_OF_PRODUCT.get(twin.spec.name if twin else "", FULL_DIE_SMS.get(draft.spec.compute_capability))
    product = f"{twin.spec.name} has {known}" if twin and known else "products have fewer"
    if count == full:
        message = f"{count} SMs are the full die; {product}. Write the number that the product has enabled."
        yield draft.finding("chip.sm_count", "error", "full-die-sm-count", message)
    elif twin and known:
        same = [other.spec.name for other in draft.others() if other.spec.chip.sm_count == count]
        hint = f" {', '.join(same)} {'has' if len(same) == 1 else 'have'} {count}." if same else ""
        yield draft.finding("chip.sm_count", "error", "sm-count-differs", f"found {count}, {product}.{hint}")


def check_clocks(draft: Draft) -> Iterator[Finding]:
    """Compare the clocks with the known product and with the range of known chips."""
    for engine in ("vector", "tensor"):
        key = f"chip.{engine}_clock"
        clock = draft.values.get(key)
        if clock is None or clock <= 0:
            continue
        known = draft.known(key)
        if not CLOCKS_HZ[0] <= clock <= CLOCKS_HZ[1]:
            code = "unit-1000x" if known is None or unit_slip(clock / known) else "implausible-figure"
            yield draft.finding(
                key, "error", code, f"{format_si(clock, 'Hz')} is not the clock of a processor. Check MHz and GHz."
            )
        elif known and draft.twin and not near(clock, known):
            severity = "warning" if near(clock, known, DOUBTFUL) else "error"
            yield draft.finding(
                key,
                severity,
                "clock-differs",
                f"found {format_si(clock, 'Hz')}, {draft.twin.spec.name} has {format_si(known, 'Hz')} "
                f"({deviation(clock, known)}). {_whose(draft, key, clock)}",
            )


def _whose(draft: Draft, key: str, clock: float) -> str:
    same = [other.spec.name for other in draft.family() if near(clock, other.values.get(key, 0.0), 1e-6)]
    if same:
        return f"That is the clock of {', '.join(same)}."
    return "Tensor and vector peaks may have different clocks, and a driver's maximum is not the datasheet's clock."


def check_power(draft: Draft) -> Iterator[Finding]:
    """Compare the power limits with the known product and with the range of known boards."""
    for key in ("chip.tdp", "chip.tdp_alone"):
        power = draft.values.get(key)
        if power is None or power <= 0:
            continue
        known = draft.known(key)
        if not POWER_W[0] <= power <= POWER_W[1]:
            code = "unit-1000x" if known is None or unit_slip(power / known) else "implausible-figure"
            message = f"{format_si(power, 'W')} is not the power limit of a board. Check W and kW."
            yield draft.finding(key, "error", code, message)
        elif known and draft.twin and not near(power, known):
            # a board may be limited to less than its datasheet says, and not to more
            yield draft.finding(
                key,
                "warning" if power < known else "error",
                "power-differs",
                f"found {format_si(power, 'W')}, {draft.twin.spec.name} has {format_si(known, 'W')} "
                f"({deviation(power, known)}).",
            )


def check_facts(draft: Draft) -> Iterator[Finding]:
    """Compare facts of the chip with the known product, or with machines of the same compute capability."""
    chip = draft.spec.chip
    if chip.max_threads_per_sm and chip.max_warps_per_sm and chip.warp_size:
        threads = chip.max_warps_per_sm * chip.warp_size
        if chip.max_threads_per_sm != threads:
            product = f"{chip.max_warps_per_sm} warps x {chip.warp_size} threads"
            message = f"found {chip.max_threads_per_sm}, {product} = {threads}."
            yield draft.finding("chip.max_threads_per_sm", "error", "fact-differs", message)
    for fact in (*SHARED_FACTS, *OWN_FACTS):
        value = getattr(chip, fact)
        usual, whose = _usual_fact(draft, fact)
        if value and usual and value != usual:
            message = f"found {value}, {whose} has {usual}."
            yield draft.finding(f"chip.{fact}", "error" if draft.twin else "warning", "fact-differs", message)


def _usual_fact(draft: Draft, fact: str) -> tuple[Any, str]:
    """Return a fact of the known product, or the one that its compute capability has, and whose it is."""
    if draft.twin:
        return getattr(draft.twin.spec.chip, fact), draft.twin.spec.name
    capability = draft.spec.compute_capability
    if not capability or fact in OWN_FACTS:
        return None, ""
    if fact == "max_threads_per_sm" and capability in THREADS_PER_SM:
        return THREADS_PER_SM[capability], f"compute capability {capability}"
    values = {getattr(other.spec.chip, fact) for other in draft.family()} - {None, ""}
    return (values.pop() if len(values) == 1 else None), f"compute capability {capability}"
