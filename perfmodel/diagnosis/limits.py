"""How far each part of a profile is from its physical limit: measured time against what the machine allows."""

from __future__ import annotations

import dataclasses
import math
import re
from dataclasses import dataclass

from perfmodel.core.hardware import Hardware
from perfmodel.errors import UsageError
from perfmodel.prediction.predict import floor_time, predict
from perfmodel.profile.profile import COMMUNICATION, HOST, MEMCPY, MEMSET, Profile, ProfileEntry

#: what limits a part of a profile while it runs
COMPUTE, MEMORY, TRANSFER, UNKNOWN = "compute", "memory", "transfer", "unknown"
#: how that is known: from the model, from hardware counters, from what kind of work it is, or from the name alone
BY_MODEL, BY_COUNTERS, BY_KIND, BY_NAME = "model", "counters", "kind", "name"

# Names as the libraries choose them: cuBLAS, CUTLASS, cuDNN, rocBLAS ("Cijk_"), MIOpen, FlashAttention, Inductor.
_COMPUTE_NAME = re.compile(
    r"gemm|nvjet|xmma|cijk_|cutlass|conv|[sh]cudnn|winograd|wgrad|dgrad|fprop|implicit_|flash|fmha|attention|attn|mma|matmul|linear|b?addb?mm|bmm|\bmm\b",
    re.IGNORECASE,
)
_MEMORY_NAME = re.compile(
    r"elementwise|vectorized|copy|memset|memcpy|fill|cat|norm|softmax|reduce|pool|embedding|index|gather|scatter|"
    r"transpose|permute|triton_(poi|red|per)|dropout|relu|gelu|silu|adam|sgd|multi_tensor|foreach|rope|rotary|sort|topk|gemv|bn_(fw|bw)|cast|kvcache|"
    # the framework's own elementwise operators and reductions, in place or not
    r"^aten::(add|sub|mul|div|pow|neg|abs|exp|log|sqrt|rsqrt|sigmoid|tanh|clamp|where|sum|mean|max|min|var|argmax|cumsum|"
    r"maximum|minimum|eq|ne|lt|le|gt|ge|bitwise_\w+|logical_\w+|masked_fill|zero|lerp|addcmul|addcdiv)(_|\.\w+)?(\(|$)",
    re.IGNORECASE,
)
#: operators whose counts give a bound, and that the latency model says nothing of: libraries usually make two passes
#: over the inputs of a batch norm, whose statistics need every image before the first result; and the constants of
#: convolutions were fitted on forward ones, whose algorithms (Winograd) the gradients do not all have
_NOT_PREDICTED = re.compile(r"batch_norm|convolution_backward")
#: the metric in which a reader of counters puts the FLOP of one data type and engine
_COUNTED_FLOP = re.compile(r"flop_([a-z0-9]+)_(vector|tensor)")


@dataclass(frozen=True)
class Limit:
    """One entry of a profile against a machine.

    Attributes
    ----------
    entry : the part of the profile.
    limiter : "compute", "memory", "transfer" or "unknown".
    basis : "model", "counters", "kind", "name", or empty where the limiter is unknown.
    attainable_time_s : the bound of all calls together [s], every tensor crossing device memory once; where the
        measurement beats that, ``floor_time_s``. None where neither shapes nor counters give one.
    floor_time_s : what no call is faster than, the data in the caches already [s], of all calls; or None.
    predicted_time_s, predicted_low_s, predicted_high_s : time to expect of all calls, with its 80 % interval [s]; None
        without an operator, and where only its bound is known (`_NOT_PREDICTED`: batch norms, gradients of
        convolutions).
    why_unknown : why there is no bound, or empty.
    """

    entry: ProfileEntry
    limiter: str = UNKNOWN
    basis: str = ""
    attainable_time_s: float | None = None
    floor_time_s: float | None = None
    predicted_time_s: float | None = None
    predicted_low_s: float | None = None
    predicted_high_s: float | None = None
    why_unknown: str = ""

    @property
    def efficiency(self) -> float | None:
        """Attainable over measured time, from 0 to 1; None where there is no bound or no time."""
        if self.attainable_time_s is None or not self.entry.time_s:
            return None
        return min(self.attainable_time_s / self.entry.time_s, 1.0)

    @property
    def max_local_speedup(self) -> float:
        """Measured over attainable time: more is gained only by another operator; infinite where it is not known."""
        efficiency = self.efficiency
        return 1.0 / efficiency if efficiency else math.inf


def limits(profile: Profile, hardware: Hardware | None = None) -> tuple[Limit, ...]:
    """Return the limit of each entry of a profile, in its order.

    Parameters
    ----------
    profile : the measured profile.
    hardware : the machine that it was measured on; without it only kinds and names tell what limits a part.
    """
    return tuple(limit(entry, hardware) for entry in profile.entries)


def limit(entry: ProfileEntry, hardware: Hardware | None) -> Limit:
    """Return how far one entry is from what a machine allows.

    With an operator: the roofline bound of all its calls (`perfmodel.prediction.predict`). With FLOP and bytes that
    counters saw: max(sum of FLOP / peak over the data types, bytes / bandwidth), since then the traffic is what the
    kernel really had. Else the
    kind of work, or the name, tells which ceiling it works against, and there is no bound.
    """
    if hardware is not None and entry.flop is not None and entry.bytes is not None:
        return _by_counters(entry, hardware)
    if hardware is not None and entry.op is not None and entry.calls:
        return _by_model(entry, hardware)
    reason = entry.not_modelled or _why_unknown(entry, hardware)
    if entry.category in (MEMCPY, COMMUNICATION):
        return Limit(entry, TRANSFER, BY_KIND, why_unknown=reason)
    if entry.category == MEMSET:
        return Limit(entry, MEMORY, BY_KIND, why_unknown=reason)
    limiter = UNKNOWN if entry.category == HOST else _by_name(entry)
    return Limit(entry, limiter, BY_NAME if limiter != UNKNOWN else "", why_unknown=reason)


def _why_unknown(entry: ProfileEntry, hardware: Hardware | None) -> str:
    if hardware is None:
        return "no machine is named to compare with"
    if entry.op is None:
        return "neither shapes nor counters say what it computes"
    return "the profile does not say how often it was called"


def _by_name(entry: ProfileEntry) -> str:
    """Return what names say: that of the launching operator first, since kernels' names hold many words."""
    for name in (entry.launched_by, *entry.kernels[:1], entry.name):
        if _COMPUTE_NAME.search(name) and not re.search(r"norm", name, re.IGNORECASE):
            return COMPUTE
        if _MEMORY_NAME.search(name):
            return MEMORY
    return UNKNOWN


def _by_model(entry: ProfileEntry, hardware: Hardware) -> Limit:
    assert entry.op is not None
    assert entry.calls
    op = dataclasses.replace(entry.op, count=1)
    try:
        made = predict(op, hardware)
        floor = float(floor_time(op, hardware, "warm"))
    except UsageError as error:
        return dataclasses.replace(
            limit(dataclasses.replace(entry, op=None), hardware), entry=entry, why_unknown=str(error)
        )
    # a call may compute its operator several times: both gradients of a convolution
    calls = entry.calls * entry.op.count
    bound = float(made.bound_time_s) * calls
    ridge = made.ridge_point_flop_per_byte
    links = entry.category in (MEMCPY, COMMUNICATION) or str(made.limiter) in ("pcie", "nvlink", "xgmi")
    computes = float(made.arithmetic_intensity_flop_per_byte) >= ridge  # False where there is no ridge
    expected = (made.predicted_time_s, made.predicted_time_low_s, made.predicted_time_high_s)
    told = not _NOT_PREDICTED.search(entry.launched_by)
    predicted_s, low_s, high_s = (float(time_s) * calls if told else None for time_s in expected)
    return Limit(
        entry,
        TRANSFER if links else COMPUTE if computes else MEMORY,
        BY_MODEL,
        attainable_time_s=bound if bound <= entry.time_s else min(floor * calls, entry.time_s),
        floor_time_s=floor * calls,
        predicted_time_s=predicted_s,
        predicted_low_s=low_s,
        predicted_high_s=high_s,
    )


def _by_counters(entry: ProfileEntry, hardware: Hardware) -> Limit:
    """Return the roofline over what the counters saw."""
    assert entry.flop is not None
    assert entry.bytes is not None
    bandwidth = hardware.main_memory.bandwidth_bytes_per_s
    compute_s = _counted_compute_s(entry, hardware)
    memory_s = entry.bytes / bandwidth if bandwidth else 0.0
    time_s = max(compute_s, memory_s)
    return Limit(
        entry,
        COMPUTE if compute_s > memory_s else MEMORY,
        BY_COUNTERS,
        attainable_time_s=min(time_s, entry.time_s),
        floor_time_s=min(time_s, entry.time_s),
    )


def _counted_compute_s(entry: ProfileEntry, hardware: Hardware) -> float:
    """Return the shortest time for the FLOP that were counted [s]: those of each data type and engine at their peak.

    The metrics "flop_fp16_tensor", "flop_fp32_vector" say which ran where; what they leave, and what the machine
    lists no peak for, counts at the fastest peak of the machine.
    """
    assert entry.flop is not None
    fastest = max((peak.flop_per_s for peak in hardware.peaks), default=math.inf)
    total_s, left = 0.0, entry.flop
    for key, flop in entry.metrics.items():
        match = _COUNTED_FLOP.fullmatch(key)
        if match:
            peak = hardware.find_peak(match.group(1), match.group(2))
            total_s += flop / (peak.flop_per_s if peak else fastest)
            left -= flop
    return total_s + max(left, 0.0) / fastest
