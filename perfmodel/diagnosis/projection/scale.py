"""The factor by which one part of a profile becomes longer or shorter on another machine, and how uncertain it is."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from dataclasses import dataclass

from perfmodel.core.hardware import Hardware, cached_per_machine
from perfmodel.core.machine_parts import Peak
from perfmodel.core.vocabulary import EventKind, Limiter
from perfmodel.diagnosis.limits import Basis, Limit, limit
from perfmodel.diagnosis.profiled import profiled_time
from perfmodel.diagnosis.whose_kernels import library_of
from perfmodel.errors import UsageError
from perfmodel.operators import Operator
from perfmodel.operators.elementwise import Elementwise
from perfmodel.prediction.designs import generation
from perfmodel.prediction.latency.doubts import HOST_DEVIATION
from perfmodel.prediction.predict import predict
from perfmodel.prediction.result import Prediction
from perfmodel.profile.arithmetic import Arithmetic, kernel_arithmetic
from perfmodel.profile.profile import ProfileEntry

#: share of the deviation from the prediction, in ln, that a kernel takes along to another machine. Of 0, 1/2 and 1, 1/2
#: is best or equal to the best of them in 8 of the 12 open tables of measurements of the same shapes on two machines
#: (190 ordered pairs of machines, 2026-11-22): mean errors of 8 to 18 %, with 1 of 4 to 23 %
CARRIED = 0.5
#: correlation of the deviations of one shape on two machines: the median over the same pairs and tables
SHARED = 0.2
#: the same two figures for machines of one design: H100 and H200, whose deviations correlate by 0.6 to 0.97 in the
#: tables of products and attention; a full share makes mean errors of 2 to 6 %, a half of 3 to 6 %, none of 5 to 10 %
CARRIED_BY_KIN, SHARED_BY_KIN = 1.0, 0.85
#: standard deviation of ln(measured / scaled) where a time is only multiplied by the ratio of two bandwidths or peaks:
#: 1.25 times the mean deviation of calls above 30 us in the same tables, 0.49 for bandwidths and 0.36 for peaks
OF_CEILINGS = 0.5
#: and where the two predictions are those of an operator for which the model has a bound only: assumed
OF_BOUNDS = 0.3
#: dtypes that take the place of one that a machine lacks, the nearest first
_INSTEAD = {
    "tf32": ("fp32",),
    "bf16": ("fp16", "fp32"),
    "fp16": ("bf16", "fp32"),
    "fp8": ("bf16", "fp16"),
    "int8": ("fp16",),
    "fp4": ("fp8", "bf16", "fp16"),
}


@dataclass(frozen=True)
class Scaled:
    """One entry on another machine.

    Attributes
    ----------
    factor : time there over time here.
    deviation : standard deviation of ln(measured / projected).
    limiter : what limits it on the other machine: what most of the predicted time there is spent on, else the ceiling.
    basis : how the factor was found, in words.
    """

    factor: float
    deviation: float
    limiter: Limiter
    basis: str


def scale_entry(entry: ProfileEntry, source: Hardware, target: Hardware) -> Scaled:
    """Return how much longer one entry takes on another machine.

    With an operator, t' = p' (t / p)^w, with p, p' the predictions on both machines: w = `CARRIED`, since a machine's
    own deviation does not go along (all of it does between machines of one design); and w = 1 - (s / r)^2 where that is
    more, with r = ln(t / p) and s the standard deviation of the prediction (the positive-part estimator of James and
    Stein 1961, Proc. 4th Berkeley Symposium 1:361), since a kernel far off its prediction is another kernel than the
    model's on both machines.

    Otherwise the start of the kernel does not become shorter, and the rest follows the ceiling that limits it. What the
    CPU does beside a GPU stays as it is, and is as unsure as hosts differ.
    """
    here = limit(entry, source)
    if source.name == target.name:
        return Scaled(1.0, 0.0, here.limiter, "the same machine")
    if is_beside_gpu(entry, source):
        return Scaled(1.0, HOST_DEVIATION, Limiter.HOST, "work of the CPU: as long with another GPU")
    if entry.op is not None and here.basis is Basis.MODEL:
        scaled = _by_model(entry, entry.op, here, source, target)
        if scaled is not None:
            return scaled
    if here.basis is Basis.COUNTERS:
        there = limit(entry, target)
        if here.floor_time_s and there.floor_time_s:
            factor = there.floor_time_s / here.floor_time_s
            there = limit(dataclasses.replace(entry, time_s=factor * entry.time_s), target)
            return Scaled(factor, OF_CEILINGS, there.limiter, "ratio of the bounds for the counted FLOP and bytes")
    return _by_ceiling(entry, here.limiter, source, target)


def is_beside_gpu(entry: ProfileEntry, source: Hardware) -> bool:
    """Return whether an entry is work of the CPU while the profiled machine is a GPU: calls, ranges, operators."""
    return entry.category == EventKind.HOST and source.kind != "cpu"


def _by_model(entry: ProfileEntry, op: Operator, here: Limit, source: Hardware, target: Hardware) -> Scaled | None:
    """Return the factor by the ratio of the predictions, None where the target cannot compute the operator."""
    one = dataclasses.replace(op, count=1)
    library = library_of(entry)
    there, instead = _predicted_there(one, target, library)
    if there is None:
        return None
    first = predict(one, source, library=library)
    ratio = profiled_time(there, target) / profiled_time(first, source)
    # not that of the roofline: a kernel that computes addresses reads no faster from a faster memory
    limiter = Limiter(str(there.predicted_limiter))
    note = f", in {instead}: no {op.dtype} there" if instead else ""
    if here.predicted_time_s is None or not entry.time_s:
        return Scaled(ratio, OF_BOUNDS, limiter, f"ratio of the bounds and predictions{note}")
    r = math.log(entry.time_s / here.predicted_time_s)
    s, s_there = _deviation(first), _deviation(there)
    kin = generation(source) == generation(target)
    carried, shared = (CARRIED_BY_KIN, SHARED_BY_KIN) if kin else (CARRIED, SHARED)
    w = max(carried, 1.0 - (s / r) ** 2) if r else carried
    variance = s_there**2 + (w * s) ** 2 - 2 * shared * w * s * s_there
    factor = ratio * math.exp((w - 1.0) * r)
    return Scaled(factor, math.sqrt(variance), limiter, f"ratio of the predictions{note}")


def _deviation(prediction: Prediction) -> float:
    """Return the standard deviation of ln(measured / predicted)."""
    return math.sqrt(sum(float(value) for value in prediction.uncertainty.variances(prediction.regime).values()))


def _predicted_there(op: Operator, target: Hardware, library: str) -> tuple[Prediction | None, str]:
    """Return the prediction on the target, and the dtype in whose place it stands, if the target lacks the first."""
    for dtype in ("", *_INSTEAD.get(op.dtype, ())):
        try:
            return predict(_with_dtype(op, dtype) if dtype else op, target, library=library), dtype
        except UsageError:
            continue
    return None, ""


def _with_dtype(op: Operator, dtype: str) -> Operator:
    changed = {"dtype": dtype}
    if getattr(op, "out_dtype", "") == op.dtype:
        changed["out_dtype"] = dtype
    return dataclasses.replace(op, **changed)  # type: ignore[arg-type]


def _by_ceiling(entry: ProfileEntry, limiter: Limiter, source: Hardware, target: Hardware) -> Scaled:
    """Return the factor by the ratio of the ceilings that limit an entry, beyond the start of its kernels.

    With t the time of a call, s and s' the starts of a kernel here and there (`start_time`) and c the ratio of the
    ceilings, t' = S min(t, s) / s + c max(t - s, 0). What a kernel takes up to s is its start: launching its blocks,
    and fetching instructions and arguments, which takes S there whatever it computes. A kernel that takes less than s
    does nothing else, and differs from the usual start by the same factor there. S is the longer start of the two,
    since a start is not sure enough to promise a shorter one, and s' where the dispatch is known to be a part of it on
    one of the machines only (`perfmodel.diagnosis.dispatches`). From H100 to H200, where s' is 1.24 times s, kernels of
    1 to 4 starts are 7 % off in the mean (24 of ``examples/records``, measured on both), and 17 % with S = s.

    t' is continuous in t and never falls. Its deviation is the mean of that of the start, half of `OF_CEILINGS`, and of
    that of the rest, weighted by their times.
    """
    ratio, spread, words = _ratio(entry, limiter, source, target)
    if limiter is Limiter.LINK or not entry.calls or not entry.time_s:
        return Scaled(ratio, OF_CEILINGS + spread, limiter, words)
    call_s = entry.time_s / entry.calls
    here_s, there_s = start_time(source), start_time(target)
    known = (source.launch.queued_s is None) is not (target.launch.queued_s is None)
    longest_s = there_s if known else max(there_s, here_s)
    starting_s, rest_s = longest_s * min(1.0, call_s / here_s), max(call_s - here_s, 0.0) * ratio
    new_s = starting_s + rest_s
    deviation = (starting_s * OF_CEILINGS / 2 + rest_s * (OF_CEILINGS + spread)) / new_s
    if rest_s == 0.0:
        words = "as long as the start of a kernel: " + ("unchanged" if longest_s == here_s else "it differs")
        return Scaled(new_s / call_s, deviation, Limiter.LAUNCH, words)
    return Scaled(new_s / call_s, deviation, limiter, f"{words}, beyond the start of a kernel")


@cached_per_machine
def start_time(hardware: Hardware) -> float:
    """Return the time of a kernel that does next to nothing [s]: no kernel becomes faster than it."""
    return profiled_time(predict(Elementwise(numel=1, dtype="fp32"), hardware), hardware)


def _ratio(entry: ProfileEntry, limiter: Limiter, source: Hardware, target: Hardware) -> tuple[float, float, str]:
    """Return the ratio of the times by a ceiling, a further deviation of its logarithm, and the ceiling in words."""
    if limiter is Limiter.LINK:
        what, rate = _link_of(entry)
        rates = [rate(machine) for machine in (source, target)]
        if None in rates:
            return 1.0, OF_CEILINGS, f"unchanged: the bandwidth of {what} is not known for both machines"
        return (rates[0] or 1.0) / (rates[1] or 1.0), 0.0, f"ratio of the bandwidths of {what}"
    memory = _bandwidth(source) / _bandwidth(target)
    peaks, what = _peak_ratio(entry, source, target)
    if limiter is Limiter.COMPUTE:
        return peaks, 0.0, f"ratio of the peaks{what}"
    if limiter is Limiter.UNKNOWN:
        ratios = sorted((memory, peaks))
        spread = math.log(ratios[1] / ratios[0]) / 2
        return math.sqrt(ratios[0] * ratios[1]), spread, "between the ratios of the bandwidths and of the peaks"
    return memory, 0.0, "ratio of the bandwidths of device memory"


def _bandwidth(hardware: Hardware) -> float:
    return hardware.main_memory.bandwidth_bytes_per_s or math.nan


def _peak_ratio(entry: ProfileEntry, source: Hardware, target: Hardware) -> tuple[float, str]:
    """Return the ratio of the peaks that an entry's products have, and these in words.

    They are those of the arithmetic that its kernel's name tells. Where it tells none, or one that the machines lack,
    they are those of the first dtype of matrix products that both have.
    """
    for name in (*entry.kernels[:1], entry.name):
        arithmetic = kernel_arithmetic(name)
        if arithmetic is not None:
            try:
                here, there = _peaks(arithmetic, source, target)
            except UsageError:
                break
            return here.flop_per_s / there.flop_per_s, _peaks_in_words(here, there)
    for dtype in ("bf16", "fp16", "fp32"):
        try:
            return source.best_peak(dtype).flop_per_s / target.best_peak(dtype).flop_per_s, ""
        except UsageError:
            continue
    return 1.0, ""


def _peaks(arithmetic: Arithmetic, source: Hardware, target: Hardware) -> tuple[Peak, Peak]:
    """Return the peaks of a kernel here and there.

    The library leaves the tensor engine aside there as well if it does so here. Where this machine's has not the dtype,
    it takes the one that has it there.

    Raises
    ------
    UsageError
        When a machine has no peak for the dtype, nor for one in its place.
    """
    here = source.find_peak(*arithmetic) or source.best_peak(arithmetic.dtype)
    if here.engine == "vector" and source.find_peak(arithmetic.dtype, "tensor"):
        return here, target.vector_peak(arithmetic.dtype)
    for dtype in (arithmetic.dtype, *_INSTEAD.get(arithmetic.dtype, ())):
        if dtype in target.dtypes():
            return here, target.best_peak(dtype)
    raise target.lacks(arithmetic.dtype)


def _peaks_in_words(here: Peak, there: Peak) -> str:
    """Return the dtypes and engines of two peaks, once where they are the same."""
    first, second = (f"{peak.dtype} ({peak.engine} engine)" for peak in (here, there))
    return f" in {first}" if first == second else f" in {first} here and {second} there"


def _link_of(entry: ProfileEntry) -> tuple[str, Callable[[Hardware], float | None]]:
    """Return which link an entry uses: that between devices for communication, that to the host for copies."""
    if entry.category is EventKind.COMMUNICATION:
        return "the links between devices", _fastest_link
    return "the link to the host", _host_link


def _fastest_link(hardware: Hardware) -> float | None:
    return max((link.bandwidth_bytes_per_s for link in hardware.links), default=None)


def _host_link(hardware: Hardware) -> float | None:
    """Return the bandwidth of PCIe, or else of the slowest link, as C2C [B/s]."""
    rates = [(not link.name.lower().startswith("pcie"), link.bandwidth_bytes_per_s) for link in hardware.links]
    return min(rates)[1] if rates else None
