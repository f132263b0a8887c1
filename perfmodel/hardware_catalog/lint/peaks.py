"""Rules about peaks: dense, of this product and dtype, and consistent with the arithmetic."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from perfmodel.core.units import format_si
from perfmodel.hardware_catalog.lint._compare import TOLERANCE, deviation, near, unit_slip
from perfmodel.hardware_catalog.lint._draft import Draft, Finding
from perfmodel.hardware_catalog.lint._product import FigureNames, compare_with_product
from perfmodel.hardware_catalog.schema import RateSpec

#: products with two devices; a specification describes one. Sources: AMD Instinct MI250X datasheet (two GCDs);
#: NVIDIA H100 NVL product brief (188 GB is the pair)
PAIRS = ("mi250x", "h100-nvl-94gb")
#: from the lowest known ridge point (Tesla P4 fp16, 0.45 FLOP/B) to the highest (Jetson AGX Thor fp4, 3780), with a
#: margin
RIDGE_POINTS = (0.1, 5000.0)
#: the unit of a peak, and the codes of one that is rounded up or another than the product's
_NAMES = FigureNames("FLOP/s", "rounded-up-peak", "peak-differs")
#: on the tensor engine, no dtype is slower than those to the left of it
WIDTH_ORDER = (("fp64",), ("tf32",), ("fp16", "bf16"), ("fp8",), ("fp4",))


def check_peaks(draft: Draft) -> Iterator[Finding]:
    """Compare each peak with the known product and with SMs x FLOP per clock x clock."""
    for engine, dtype, rate in draft.rates():
        key = f"peak.{engine}.{dtype}"
        value = draft.values.get(key)
        if value is None or value <= 0:
            continue
        yield from _flop_per_clock(draft, key, rate)
        found = compare_with_product(draft, key, value, _NAMES, _explain) or _arithmetic(draft, key, rate, value)
        if found:
            yield found


def _arithmetic(draft: Draft, key: str, rate: RateSpec, value: float) -> Finding | None:
    """Compare a peak with SMs x FLOP per clock per SM x clock."""
    engine, dtype = key.split(".")[1:]
    per_clock = rate.flop_per_clock_per_sm or _usual_per_clock(draft, key)
    clock = draft.clock_hz(engine, dtype)
    if not (per_clock and clock and draft.spec.chip.sm_count):
        return None
    expected = draft.spec.chip.sm_count * per_clock * clock
    if near(value, expected):
        return None
    code, hint = _explain(draft, key, value, expected, "peak-arithmetic")
    product = f"{draft.spec.chip.sm_count} SMs x {per_clock:g} FLOP/clk x {format_si(clock, 'Hz')}"
    return draft.finding(
        key,
        "error",
        code,
        f"found {_rate(value)}, {product} = {_rate(expected)} ({deviation(value, expected)}). {hint}",
    )


def _usual_per_clock(draft: Draft, key: str) -> float | None:
    """Return the FLOP per clock and SM that most known products of the compute capability have, if most have the same.

    GeForce is compared with GeForce, since it accumulates in fp32 at half the rate. Of tensor engines it is the rate of
    the design, and of ``draft`` the share of it that the vendor leaves.
    """
    alike = (other for other in draft.family() if _is_geforce(other) == _is_geforce(draft))
    rates = Counter(rate / _share(other, key) for other in alike if (rate := _own_per_clock(other, key)))
    rate, count = rates.most_common(1)[0] if rates else (0.0, 0)
    return rate * _share(draft, key) if 2 * count > rates.total() else None


def _share(draft: Draft, key: str) -> float:
    """Return the share of the design's rate that the vendor leaves a peak."""
    share = draft.spec.chip.tensor_share if key.startswith("peak.tensor.") else None
    return share or 1.0


def _is_geforce(draft: Draft) -> bool:
    return any("geforce" in name.lower() for name in (draft.spec.title, *draft.spec.device_names))


def _flop_per_clock(draft: Draft, key: str, rate: RateSpec) -> Iterator[Finding]:
    """Compare FLOP per clock and SM with the known product, or with machines of the compute capability."""
    own = rate.flop_per_clock_per_sm
    if draft.twin:
        usual, whose = _own_per_clock(draft.twin, key), draft.twin.spec.name
    else:
        usual, whose = _usual_per_clock(draft, key), f"compute capability {draft.spec.compute_capability}"
    if usual and own and not near(own, usual):
        hint = "The sparse figure is twice as high." if near(own, 2 * usual) else "Correct it and the rate."
        yield draft.finding(key, "error", "flop-per-clock", f"found {own:g} FLOP/clk/SM, {whose} has {usual:g}. {hint}")


def _own_per_clock(draft: Draft, key: str) -> float | None:
    """Return the FLOP per clock per SM of one peak of a specification."""
    for engine, dtype, rate in draft.rates():
        if key == f"peak.{engine}.{dtype}":
            return rate.flop_per_clock_per_sm
    return None


def _explain(draft: Draft, key: str, value: float, expected: float, default: str) -> tuple[str, str]:
    """Return the code of the mistake that explains ``value`` instead of ``expected``, and a remedy."""
    ratio = value / expected
    if unit_slip(ratio):
        return "unit-1000x", "Check the prefix: GFLOP/s, TFLOP/s, PFLOP/s."
    if near(ratio, 2, 0.015):
        doubled = _doubled(draft, key)
        if doubled:
            return doubled
    own_figure = draft.known(key)
    if own_figure and near(value, own_figure):
        return default, "The figure is right for the product; check the factors that it is computed from."
    engine, dtype = key.split(".")[1:]
    for other_engine, other_dtype, _ in (draft.twin or draft).rates():
        own = (draft.twin or draft).values.get(f"peak.{other_engine}.{other_dtype}")
        if own and other_dtype != dtype and near(value, own):
            return "other-dtype-peak", f"That is the {other_engine} peak of {other_dtype}; write that of {dtype}."
    for other in draft.others():
        if near(value, other.values.get(key, 0.0)):
            return "other-product-peak", f"That is the {engine} {dtype} peak of {other.spec.name}."
    return default, "Take the dense figure of this product's datasheet."


def _doubled(draft: Draft, key: str) -> tuple[str, str] | None:
    """Return the code and the reason of a peak that is twice too high."""
    engine, dtype = key.split(".")[1:]
    if _is_geforce(draft) and engine == "tensor" and dtype in ("fp16", "fp8"):
        return "fp16-accumulate", "With fp32 accumulation GeForce has half this rate (or it is the sparse figure)."
    if draft.twin and draft.twin.spec.name == "mi250x":
        return "pair-for-device", "That is the module with two devices; this file describes one."
    if engine == "tensor" and has_sparsity(draft):
        return "sparse-as-dense", "Divide by 2: peaks are dense; the sparse figure belongs in sparse_2to4."
    return None


def has_sparsity(draft: Draft) -> bool:
    """Return whether the vendor prints sparse figures: NVIDIA since Ampere, AMD since CDNA 3."""
    capability = draft.spec.compute_capability
    if capability.startswith("gfx"):
        return capability >= "gfx94"
    major = capability.split(".")[0]
    return not major.isdigit() or int(major) >= 8


def check_engines(draft: Draft) -> Iterator[Finding]:
    """Compare the peaks of a machine with each other and with its bandwidth."""
    values = draft.values
    for _, dtype, _ in (rate for rate in draft.rates() if rate[0] == "tensor"):
        tensor, vector = values.get(f"peak.tensor.{dtype}"), values.get(f"peak.vector.{dtype}")
        if tensor and vector and tensor < vector * (1 - TOLERANCE):
            yield draft.finding(
                f"peak.tensor.{dtype}",
                "error",
                "tensor-below-vector",
                f"{_rate(tensor)} is below the vector engine's {_rate(vector)}. Are they swapped?",
            )
    fastest = 0.0
    for width in WIDTH_ORDER:
        peaks = {dtype: values[f"peak.tensor.{dtype}"] for dtype in width if f"peak.tensor.{dtype}" in values}
        for dtype, peak in peaks.items():
            if peak < fastest * (1 - TOLERANCE):
                yield draft.finding(
                    f"peak.tensor.{dtype}",
                    "warning",
                    "dtype-order",
                    f"{_rate(peak)} is below the {_rate(fastest)} of a wider dtype. Are they swapped?",
                )
        fastest = max(fastest, *peaks.values()) if peaks else fastest
    yield from _scaled_peaks(draft)
    yield from _ridge_points(draft)


def _scaled_peaks(draft: Draft) -> Iterator[Finding]:
    """Compare the rate of operands with scales with that of others: no instruction for them is slower."""
    for engine, dtype, _ in draft.rates():
        key = f"peak.{engine}.{dtype}"
        peak, scaled = draft.values.get(key), draft.values.get(f"{key}.microscaled")
        if peak and scaled and not peak * (1 - TOLERANCE) <= scaled <= 2 * peak * (1 + TOLERANCE):
            yield draft.finding(
                f"{key}.microscaled",
                "error",
                "microscaled-peak",
                f"{_rate(scaled)} is not once or twice the {_rate(peak)} of operands without scales.",
            )


def _ridge_points(draft: Draft) -> Iterator[Finding]:
    main = "hbm" if "hbm" in draft.spec.memory else "dram"
    bandwidth = draft.values.get(f"memory.{main}.bandwidth")
    for engine, dtype, _ in draft.rates():
        peak = draft.values.get(f"peak.{engine}.{dtype}")
        if not (bandwidth and peak) or bandwidth <= 0:
            continue
        ridge = peak / bandwidth
        if not RIDGE_POINTS[0] <= ridge <= RIDGE_POINTS[1]:
            yield draft.finding(
                f"peak.{engine}.{dtype}",
                "error",
                "implausible-ridge-point",
                f"{_rate(peak)} / {format_si(bandwidth, 'B/s')} = {ridge:.3g} FLOP/B; known machines have "
                f"{RIDGE_POINTS[0]:g} to {RIDGE_POINTS[1]:g}. Check the prefixes of both.",
            )


def _rate(value: float) -> str:
    return format_si(value, "FLOP/s")
