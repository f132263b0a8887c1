"""Rules about the chip: processors that the product has enabled, and clocks."""

from __future__ import annotations

from collections.abc import Iterator

from perfmodel.core.units import format_si
from perfmodel.hardware_catalog.lint._compare import DOUBTFUL, deviation, near, unit_slip
from perfmodel.hardware_catalog.lint._draft import Draft, Finding

#: SMs of the full die, which no product of the compute capability has enabled. Sources: NVIDIA whitepapers P100
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
#: AD104, the die of the L4, is sold whole in other products. Source: NVIDIA Ada whitepaper v2.1
FULL_DIE_OF_PRODUCT = {"l4": 60}
CLOCKS_HZ = (0.3e9, 6e9)


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
        message = f"{count} SMs are the full die; {product}. Write what the product has enabled."
        yield draft.finding("chip.sm_count", "error", "full-die-sm-count", message)
    elif twin and known:
        same = [other.spec.name for other in draft.others() if other.spec.chip.sm_count == count]
        hint = f" {count} are those of {', '.join(same)}." if same else ""
        yield draft.finding("chip.sm_count", "error", "sm-count-differs", f"found {count}, {product}.{hint}")


def check_clocks(draft: Draft) -> Iterator[Finding]:
    """Compare the clocks with the known product and with what silicon does."""
    for engine in ("vector", "tensor"):
        key = f"chip.{engine}_clock"
        clock = draft.values.get(key)
        if clock is None or clock <= 0:
            continue
        known = draft.twin.values.get(key) if draft.twin else None
        if not CLOCKS_HZ[0] <= clock <= CLOCKS_HZ[1]:
            code = "unit-1000x" if known is None or unit_slip(clock / known) else "implausible-figure"
            yield draft.finding(
                key, "error", code, f"{format_si(clock, 'Hz')} is no clock of a processor. Check MHz and GHz."
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
    return "Tensor and vector peaks may hold at different clocks, and a driver's maximum is not the datasheet's."
