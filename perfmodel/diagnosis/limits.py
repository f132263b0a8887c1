"""How far each entry of a profile is from its physical limit: the measured time against the bound of the machine."""

from __future__ import annotations

import dataclasses
import enum
import math
import re
from dataclasses import dataclass

from perfmodel.core.hardware import Hardware
from perfmodel.core.vocabulary import CacheState, ErrorSource, EventKind, Limiter
from perfmodel.diagnosis.dispatches import dispatched_outside, without_dispatch
from perfmodel.diagnosis.profiled import gap_time, profiled_time
from perfmodel.diagnosis.untold import reading_once, spread_at_random
from perfmodel.diagnosis.whose_kernels import library_of
from perfmodel.errors import UsageError
from perfmodel.operators import Operator
from perfmodel.prediction.latency.terms import LAUNCH
from perfmodel.prediction.predict import floor_time, predict
from perfmodel.prediction.result import Prediction
from perfmodel.prediction.stretch import Stretch
from perfmodel.prediction.uncertainty import Z80
from perfmodel.profile.copies import within_device
from perfmodel.profile.profile import Profile, ProfileEntry


class Basis(enum.StrEnum):
    """The evidence for a limiter."""

    MODEL = "model"
    COUNTERS = "counters"  # hardware counters
    KIND = "kind"  # the kind of event: a copy is limited by the link
    NAME = "name"  # the name of the kernel or operator, nothing else
    NONE = ""


# Names as the libraries choose them: cuBLAS, CUTLASS, cuDNN, rocBLAS ("Cijk_"), MIOpen, FlashAttention, Inductor.
# FBGEMM also has embeddings and permutations, so that its name says nothing.
_COMPUTE_NAME = re.compile(
    r"(?<!fb)gemm(?!v)|nvjet|xmma|cijk_|cutlass|conv|[sh]cudnn|winograd|wgrad|dgrad|fprop|implicit_|flash|fmha|attention|attn|mma|matmul|linear|b?addb?mm|bmm|\bmm\b|"
    r"_dense$|lm_head",
    re.IGNORECASE,
)
#: attention with one query, or a few, for each sequence reads its keys and values once, and a step of linear attention
#: or of a state-space model its state: memory bounds it
_DECODE_NAME = re.compile(
    r"decode|paged_?attention|masked_multihead|\bmmha|single_query|kvcache_attention|_grouped_kernel_stage|fused_recurrent|state_update|causal_conv1d",
    re.IGNORECASE,
)
#: percentages of the peak that Nsight Compute's Speed of Light section has for the SMs, all of memory, and DRAM
_SM_SHARE = "sm__throughput.avg.pct_of_peak_sustained_elapsed"
_MEMORY_SHARE = "gpu__compute_memory_throughput.avg.pct_of_peak_sustained_elapsed"
_DRAM_SHARES = (
    "gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed",
    "dram__throughput.avg.pct_of_peak_sustained_elapsed",
)
#: DRAM is the part of memory that limits a kernel if it is used nearly as much as the most used part
_NEARLY = 0.9
_MEMORY_NAME = re.compile(
    r"elementwise|vectorized|copy|memset|memcpy|fill|cat|norm|softmax|reduce|pool|embedding|index|gather|scatter|"
    r"transpose|permute|triton_(poi|red|per)|dropout|relu|gelu|silu|adam|sgd|multi_tensor|foreach|rope|rotary|sort|topk|gemv|bn_(fw|bw)|cast|kvcache|"
    # the framework's own elementwise operators and reductions, in place or not
    r"^aten::(add|sub|mul|div|pow|neg|abs|exp|log|sqrt|rsqrt|sigmoid|tanh|clamp|where|sum|mean|max|min|var|argmax|cumsum|"
    r"maximum|minimum|eq|ne|lt|le|gt|ge|bitwise_\w+|logical_\w+|masked_fill|zero|lerp|addcmul|addcdiv)(_|\.\w+)?(\(|$)",
    re.IGNORECASE,
)
#: a measurement is faster than its bound from this share on: clocks differ, and boards exceed the datasheet's
FASTER_TOLERANCE = 0.02
#: standard deviation of ln(measured / predicted) that a kernel in a run adds to that of one measured alone: its clock,
#: what the caches hold, what runs beside it. The root mean squares that traces of two models on an H100 leave beyond
#: the stated ones are 0.15 (Qwen1.5-0.5B, 32 operators) and 0.27 (BERT-small, 15; AMD-AGI/TraceLens @ 171dd74721ca)
CALL_IN_A_RUN = 0.2
_IN_A_RUN = Stretch(Z80 * CALL_IN_A_RUN, Z80 * CALL_IN_A_RUN)
#: why a measurement can be faster than its bound
TOO_FAST = "faster than its bound: wrong machine, cached data, or another FLOP count"
#: metrics that hold the counted FLOP of one data type and engine
_COUNTED_FLOP = re.compile(r"flop_([a-z0-9]+)_(vector|tensor)")


@dataclass(frozen=True)
class Limit:
    """One entry of a profile against a machine.

    Attributes
    ----------
    entry : the entry of the profile.
    limiter : compute, device memory (hbm), link or unknown.
    basis : the evidence for the limiter.
    attainable_time_s : the bound of all calls together [s], with every tensor crossing device memory once;
        ``floor_time_s`` where the measurement is faster. None where neither shapes nor counters give a bound. It is
        never clamped to the measurement: see ``flag``.
    floor_time_s : the shortest possible time of all calls [s], with the data already in the caches; or None.
    predicted_time_s, predicted_low_s, predicted_high_s : expected time of all calls with its 80 % interval [s]: cold
        caches, and for the low end warm ones, and no gap behind a kernel (`perfmodel.diagnosis.profiled`); None
        without an operator.
    why_unknown : the reason why there is no bound, or empty.
    not_seen : what the constants of the prediction have not seen, see `perfmodel.core.vocabulary.ErrorSource`.
    """

    entry: ProfileEntry
    limiter: Limiter = Limiter.UNKNOWN
    basis: Basis = Basis.NONE
    attainable_time_s: float | None = None
    floor_time_s: float | None = None
    predicted_time_s: float | None = None
    predicted_low_s: float | None = None
    predicted_high_s: float | None = None
    why_unknown: str = ""
    not_seen: tuple[ErrorSource, ...] = ()

    @property
    def efficiency(self) -> float | None:
        """Attainable over measured time; None without a bound or a measured time. Above 1 something is wrong."""
        if self.attainable_time_s is None or not self.entry.time_s:
            return None
        return self.attainable_time_s / self.entry.time_s

    @property
    def flag(self) -> str:
        """What is wrong where the measurement is faster than physics allows, or empty."""
        efficiency = self.efficiency
        return TOO_FAST if efficiency is not None and efficiency > 1.0 + FASTER_TOLERANCE else ""

    @property
    def max_local_speedup(self) -> float:
        """Measured over attainable time, at least 1: only another operator could gain more. Infinite if unknown."""
        efficiency = self.efficiency
        return max(1.0 / efficiency, 1.0) if efficiency else math.inf

    @property
    def faster_than_expected(self) -> bool:
        """Whether the measurement is below the interval of the prediction."""
        return self.predicted_low_s is not None and 0 < self.entry.time_s < self.predicted_low_s


def profile_limits(profile: Profile, hardware: Hardware | None = None) -> tuple[Limit, ...]:
    """Return the limit of each entry of a profile, in the order of the entries.

    Parameters
    ----------
    profile : the measured profile.
    hardware : the machine that it was measured on; without it only the kinds and names of entries give the limiter.
    """
    outside = dispatched_outside(profile) if hardware and hardware.launch.queued_s else None
    if outside is None:
        return tuple(limit(entry, hardware) for entry in profile.entries)
    return tuple(limit(entry, hardware, share) for entry, share in zip(profile.entries, outside.tolist(), strict=True))


def limit(entry: ProfileEntry, hardware: Hardware | None, outside: float | None = None) -> Limit:
    """Return how far one entry is from its limit on a machine.

    ``outside`` is the share of its kernels whose dispatch stands before them, where a time line tells.

    With FLOP and bytes from counters, the bound is max(sum of FLOP / peak over the data types, bytes / bandwidth),
    since counters measure the kernel's real traffic; with bytes alone it is the latter, which may lie below that of the
    FLOP. With an operator, it is the roofline bound of all calls (`perfmodel.prediction.predict`). Otherwise there is
    no bound, and the kind of event or its name gives the limiter.
    """
    measured = _by_speed_of_light(entry, hardware)
    if hardware is not None and entry.flop is not None and entry.bytes is not None:
        counted = _by_counters(entry, hardware)
        return dataclasses.replace(counted, limiter=measured) if measured else counted
    if hardware is not None and entry.bytes and entry.op is None and hardware.main_memory.bandwidth_bytes_per_s:
        return _by_bytes(entry, hardware, measured)
    if measured is not None and entry.op is None:
        reason = entry.not_modelled or _why_unknown(entry, hardware)
        return Limit(entry, measured, Basis.COUNTERS, why_unknown=reason)
    if hardware is not None and entry.op is not None and entry.calls:
        return _by_model(entry, hardware, outside)
    reason = entry.not_modelled or _why_unknown(entry, hardware)
    if _crosses_a_link(entry):
        return Limit(entry, Limiter.LINK, Basis.KIND, why_unknown=reason)
    if entry.category in (EventKind.MEMCPY, EventKind.MEMSET):
        return Limit(entry, _memory_of(hardware), Basis.KIND, why_unknown=reason)
    limiter, basis = _guess(entry, hardware)
    return Limit(entry, limiter, basis, why_unknown=reason)


def _why_unknown(entry: ProfileEntry, hardware: Hardware | None) -> str:
    if hardware is None:
        return "no machine is given to compare with"
    if entry.op is None:
        return "neither shapes nor counters describe its work"
    return "the profile does not record its number of calls"


def _crosses_a_link(entry: ProfileEntry) -> bool:
    """Return whether an entry is an exchange, or a copy that leaves its device."""
    if entry.category == EventKind.MEMCPY:
        return not within_device(entry.name)
    return entry.category == EventKind.COMMUNICATION


def _memory_of(hardware: Hardware | None) -> Limiter:
    """Return the name of a machine's main memory; that of a GPU where the machine is unknown."""
    return Limiter.HBM if hardware is None else Limiter(hardware.main_memory.name)


def _guess(entry: ProfileEntry, hardware: Hardware | None) -> tuple[Limiter, Basis]:
    """Return what the name of an entry says, and that it does; nothing of the host's work."""
    limiter = Limiter.UNKNOWN if entry.category == EventKind.HOST else _by_name(entry, hardware)
    return limiter, Basis.NONE if limiter == Limiter.UNKNOWN else Basis.NAME


def _by_name(entry: ProfileEntry, hardware: Hardware | None) -> Limiter:
    """Return the limiter by name; the launching operator first, since the names of kernels contain many words."""
    for name in (entry.launched_by, *entry.kernels[:1], entry.name):
        if _DECODE_NAME.search(name):
            return _memory_of(hardware)
        if _COMPUTE_NAME.search(name) and not re.search(r"norm", name, re.IGNORECASE):
            return Limiter.COMPUTE
        if _MEMORY_NAME.search(name):
            return _memory_of(hardware)
    return Limiter.UNKNOWN


def _by_model(entry: ProfileEntry, hardware: Hardware, outside: float | None) -> Limit:
    assert entry.op is not None
    assert entry.calls
    op, library = dataclasses.replace(entry.op, count=1), library_of(entry)
    try:
        prediction = predict(op, hardware, library=library)
        floor_s = _warm_floor(op, hardware)
    except UsageError as error:
        without_op = limit(dataclasses.replace(entry, op=None), hardware)
        return dataclasses.replace(without_op, entry=entry, why_unknown=str(error))
    # One call may compute its operator several times, as both gradients of a convolution.
    calls = entry.calls * entry.op.count
    once = reading_once(op)
    if once is not None and entry.time_s < floor_s * calls:
        # A trace does not tell x * x from x * y; only x * x can be as fast as this.
        prediction, floor_s = predict(once, hardware, library=library), _warm_floor(once, hardware)
    if floor_s <= (hardware.launch.floor_s or 0.0):
        # The launch floor is a share of a replayed graph, gap included; a profiler's kernel has no gap.
        floor_s = min(floor_s, entry.time_s / calls)
    bound_s = float(prediction.bound_time_s) * calls
    spread = spread_at_random(op)
    likely = prediction if spread is None else predict(spread, hardware, library=library)
    # Nor does a trace tell what the caches hold: the kernel before may just have written what this one reads.
    warm = predict(likely.operator, hardware, library=library, cache=CacheState.WARM)
    low_s = min(float(likely.predicted_time_low_s), float(warm.predicted_time_low_s))
    times_s = (float(likely.predicted_time_s), low_s - gap_time(hardware), float(likely.predicted_time_high_s))
    if hardware.launch.queued_s is not None:
        starting_s = min(likely.predicted_terms_s.get(LAUNCH, 0.0), times_s[0])
        times_s = without_dispatch(*times_s, float(starting_s), outside)
    expected = _in_a_run(*times_s, floor_s)
    # The interval reaches up to a time with its gap, as in the tables: how long a gap is, is assumed.
    predicted_s, low_s, high_s = (time_s * calls for time_s in expected)
    predicted_s -= (float(likely.predicted_time_s) - profiled_time(likely, hardware)) * calls
    return Limit(
        entry,
        _roofline_limiter(entry, prediction, hardware),
        Basis.MODEL,
        attainable_time_s=bound_s if bound_s <= entry.time_s else floor_s * calls,
        floor_time_s=floor_s * calls,
        predicted_time_s=predicted_s,
        predicted_low_s=low_s,
        predicted_high_s=high_s,
        not_seen=tuple(source for source in likely.uncertainty if source is not ErrorSource.SHAPE),
    )


def _in_a_run(predicted_s: float, low_s: float, high_s: float, floor_s: float) -> tuple[float, float, float]:
    """Return an expected time with its interval, wider by what a kernel in a run differs from one alone.

    It does not reach further below the physical limit ``floor_s`` than it did.
    """
    low, high = _IN_A_RUN.widened(predicted_s, low_s, high_s)
    return predicted_s, max(low, min(low_s, floor_s)), high


def _warm_floor(op: Operator, hardware: Hardware) -> float:
    return float(floor_time(op, hardware, CacheState.WARM))


def _roofline_limiter(entry: ProfileEntry, prediction: Prediction, hardware: Hardware) -> Limiter:
    """Return the limiter of an operator in device memory, by its arithmetic intensity, or the link."""
    if prediction.limiter == Limiter.LINK or _crosses_a_link(entry):
        return Limiter.LINK
    # False for a dtype without a ridge point
    computes = float(prediction.arithmetic_intensity_flop_per_byte) >= prediction.ridge_point_flop_per_byte
    return Limiter.COMPUTE if computes else _memory_of(hardware)


def _by_speed_of_light(entry: ProfileEntry, hardware: Hardware | None) -> Limiter | None:
    """Return what Nsight Compute's Speed of Light shows to be used most, SMs or memory; None where it is not there."""
    sm, memory = (entry.metrics.get(key) for key in (_SM_SHARE, _MEMORY_SHARE))
    dram = next((entry.metrics[key] for key in _DRAM_SHARES if key in entry.metrics), None)
    memory = dram if memory is None else memory
    if sm is None or memory is None:
        return None
    if sm > memory:
        return Limiter.COMPUTE
    return _memory_of(hardware) if dram is None or dram >= _NEARLY * memory else Limiter.L2


def _by_counters(entry: ProfileEntry, hardware: Hardware) -> Limit:
    """Return the roofline bound for the FLOP and bytes that counters measured."""
    assert entry.flop is not None
    assert entry.bytes is not None
    bandwidth = hardware.main_memory.bandwidth_bytes_per_s
    compute_s = _counted_compute_s(entry, hardware)
    memory_s = entry.bytes / bandwidth if bandwidth else 0.0
    time_s = max(compute_s, memory_s)
    return Limit(
        entry,
        Limiter.COMPUTE if compute_s > memory_s else _memory_of(hardware),
        Basis.COUNTERS,
        attainable_time_s=time_s,
        floor_time_s=time_s,
    )


def _by_bytes(entry: ProfileEntry, hardware: Hardware, measured: Limiter | None) -> Limit:
    """Return the bound for the bytes that counters measured, where none counted FLOP.

    Memory limits what takes at most twice as long, unless Speed of Light says otherwise. What takes longer is limited
    by something else, such as arithmetic or accesses that do not coalesce. The bytes do not tell what; the name does.
    """
    assert entry.bytes is not None
    time_s = entry.bytes / (hardware.main_memory.bandwidth_bytes_per_s or math.inf)
    limiter, basis = measured or _memory_of(hardware), Basis.COUNTERS
    if measured is None and 2.0 * time_s < entry.time_s:
        limiter, basis = _guess(entry, hardware)
    return Limit(entry, limiter, basis, attainable_time_s=time_s, floor_time_s=time_s)


def _counted_compute_s(entry: ProfileEntry, hardware: Hardware) -> float:
    """Return the shortest time for the counted FLOP [s], those of each data type and engine at their peak.

    The metrics "flop_fp16_tensor", "flop_fp32_vector" divide the FLOP by data type and engine. FLOP without such a
    metric, and those of a data type without a peak, count at the fastest peak of the machine.
    """
    assert entry.flop is not None
    fastest = max((peak.flop_per_s for peak in hardware.peaks), default=math.inf)
    total_s, uncounted = 0.0, entry.flop
    for key, flop in entry.metrics.items():
        match = _COUNTED_FLOP.fullmatch(key)
        if match:
            peak = hardware.find_peak(match.group(1), match.group(2))
            total_s += flop / (peak.flop_per_s if peak else fastest)
            uncounted -= flop
    return total_s + max(uncounted, 0.0) / fastest
