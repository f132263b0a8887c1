"""How each number on a page was made: its formula, and the keys of the row that go into it.

The page shows them with the row's own values, the terms that add up, and the machine's figures with their sources. The
formulas are words for those of the modules that are named beside them; `tests/render/html/test_origins.py` computes
each from the inputs that are listed here.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from perfmodel.prediction.uncertainty import MEANINGS, Z80


@dataclass(frozen=True)
class Origin:
    """How a number is made.

    Attributes
    ----------
    formula : in words.
    inputs : keys of the row that it is computed from.
    terms : key of a mapping in the row whose values add up to it, or are shares of it.
    figures : groups of the machine's figures that it rests on: "memory", "peak", "launch", "link", "latency".
    context : whether it was measured, so that the record's conditions belong to it.
    """

    formula: str
    inputs: tuple[str, ...] = ()
    terms: str = ""
    figures: tuple[str, ...] = ()
    context: bool = False


_BOUND = Origin(
    "max(FLOP / dense peak, bytes / bandwidth of the memory, shortest launch): no kernel is faster on this machine. "
    "Datasheet figures; each tensor crosses the memory once.",
    ("flop", "bytes_read", "bytes_written", "attainable_flop_per_s", "attainable_bytes_per_s", "limiter"),
    figures=("memory", "peak", "launch"),
)
_PREDICTED = Origin(
    "The sum of the terms below: the expected time of a good library kernel.",
    ("prediction_basis", "family", "calibration", "regime", "not_seen", "timing", "cache", "library", "load"),
    terms="predicted_terms_s",
    figures=("latency", "launch"),
)
_INTERVAL = Origin(
    "80 of 100 measured times should lie in it: predicted x exp(-r) to predicted x exp(+r), r^2 = ln(q)^2 + "
    f"({Z80:.2f} s)^2, with q the 10 % or 90 % quantile of measured / predicted on rows that were not fitted, and s^2 "
    "the variance of all other sources of error, as a machine that nobody measured. Below: their shares.",
    ("predicted_time_low_s", "predicted_time_s", "predicted_time_high_s", "regime", "not_seen", "prediction_basis"),
    terms="interval_shares",
)
_MEASURED = Origin(
    "Median of the samples that counted, after a warm-up, with the cache in the stated state.",
    ("time_s", "timing", "cache", "kernel", "status", "correct", "max_relative_error"),
    context=True,
)
#: key -> origin, of `analyze`, `bench` and the operators of a trace
_OPERATORS = {
    "bound_time_s": _BOUND,
    "resident_bound_time_s": Origin(
        "The bound with the data already in a cache: bytes over that cache's bandwidth, and FLOP over the peak.",
        ("flop", "working_set_bytes", "fits_in", "resident_limiter"),
        figures=("memory", "peak"),
    ),
    "predicted_time_s": _PREDICTED,
    "predicted_time_low_s": _INTERVAL,
    "predicted_time_high_s": _INTERVAL,
    "predicted_low_s": _INTERVAL,
    "predicted_high_s": _INTERVAL,
    "measured_time_s": _MEASURED,
    "arithmetic_intensity_flop_per_byte": Origin(
        "FLOP / (bytes read + bytes written) (Williams et al. 2009).", ("flop", "bytes_read", "bytes_written")
    ),
    "ridge_point_flop_per_byte": Origin(
        "Dense peak of the dtype / bandwidth of the memory: from here on an operator is compute-bound.",
        figures=("memory", "peak"),
    ),
    "attainable_flop_per_s": Origin("FLOP / bound.", ("flop", "bound_time_s"), figures=("memory", "peak")),
    "predicted_flop_per_s": Origin("FLOP / predicted time.", ("flop", "predicted_time_s")),
    "flop": Origin(
        "Counted by the operator's formula; a fused multiply-add is 2 FLOP.", ("op", "dimensions", "params")
    ),
    "prediction_error": Origin("Predicted / measured - 1.", ("predicted_time_s", "measured_time_s")),
    "achieved_flop_per_s": Origin("FLOP / measured time.", ("flop", "measured_time_s"), context=True),
    "achieved_bytes_per_s": Origin(
        "(Bytes read + bytes written) / measured time.",
        ("bytes_read", "bytes_written", "measured_time_s"),
        context=True,
    ),
    "efficiency": Origin("Bound / measured time.", ("bound_time_s", "measured_time_s", "time_s", "calls")),
}
_TRACE = {
    "time_s": Origin(
        "Sum of the durations in the profile, of the calls in the counted window.",
        ("calls", "min_s", "median_s", "max_s", "kernels"),
        context=True,
    ),
    "fraction": Origin("Time / the whole time of the profile.", ("time_s",), context=True),
    "overall_speedup": Origin("Amdahl: total / (total - time saved).", ("time_saved_s", "target_time_s")),
    "time_saved_s": Origin(
        "Time of the targets less their new time; the basis says where the new time comes from.",
        ("target_time_s", "new_time_s", "time_saved_low_s", "time_saved_high_s", "basis"),
    ),
}
_TRAINING = {
    "time_s": Origin(
        "The sum of the terms below, of the GPU that sets the pace.",
        ("time_low_s", "time_high_s", "framework", "plan", "micro_batches", "schedule"),
        terms="terms_s",
        figures=("memory", "peak", "link"),
    ),
    "mfu": Origin(
        "Model FLOP / (time x GPUs x dense peak): 6 FLOP a parameter and token without the embedding, attention under "
        "its causal mask.",
        ("flop", "time_s", "gpus", "parameters"),
        figures=("peak",),
    ),
    "mfu_full_attention": Origin("As MFU, with the whole square of attention.", ("time_s", "gpus"), figures=("peak",)),
    "hfu": Origin(
        "FLOP that are run, recomputation included / (time x GPUs x dense peak).",
        ("hardware_flop", "time_s", "gpus"),
        figures=("peak",),
    ),
    "tokens_per_s": Origin("Batch x sequence / time.", ("batch", "seq", "time_s")),
    "tokens_per_s_per_gpu": Origin("Batch x sequence / (time x GPUs).", ("batch", "seq", "time_s", "gpus")),
    "memory_total_bytes": Origin(
        "The sum of the parts below, on the fullest GPU at its peak.",
        ("memory_low_bytes", "memory_high_bytes", "memory_capacity_bytes", "memory_peak"),
        terms="memory_bytes",
    ),
}
_SERVING = {
    "ttft_s": Origin(
        "Time from a request's arrival to its first token, over the requests of the load; 80 % interval of the steps.",
        ("ttft_s", "isl", "concurrency", "qps", "policy", "max_batched_tokens", "mean_queued"),
        figures=("memory", "peak"),
    ),
    "tpot_s": Origin(
        "Time per output token after the first: the mean step of the engine. Below: the terms of that step.",
        ("tpot_s", "batch", "decoding", "kv_bytes", "limiter"),
        terms="terms_s",
        figures=("memory", "peak"),
    ),
    "output_tokens_per_s": Origin(
        "Output tokens of all users / time.", ("output_tokens_per_s_low", "output_tokens_per_s_high", "requests_per_s",
                                               "osl")
    ),
    "tokens_per_s_per_gpu": Origin("Output tokens a second / GPUs.", ("output_tokens_per_s", "gpus")),
    "tokens_per_s_per_user": Origin("1 / time per output token.", ("tpot_s",)),
    "kv_share": Origin("KV cache in use / what the memory holds.", ("kv_bytes", "kv_tokens")),
}  # fmt: skip
_INVESTMENT = {
    "overall_speedup": Origin(
        "Amdahl 1967: 1 / ((1 - p) + p / s), p the share of the targets, s their local speedup.",
        ("fraction", "local_speedup"),
    ),
    "max_overall_speedup": Origin("Amdahl: 1 / (1 - p), if the targets took no time.", ("fraction",)),
    "time_saved_s": Origin("Time of the targets x (1 - 1 / local speedup).", ("time_s", "local_speedup")),
    "roi_per_day": Origin("(Overall speedup - 1) / days.", ("overall_speedup", "dev_days")),
    "payback_days": Origin(
        "Days x cost of a day / (yearly saving / 365).", ("dev_days", "yearly_saving", "overall_speedup")
    ),
    "net_value": Origin(
        "Present value of the savings over the horizon - days x cost of a day.", ("yearly_saving", "dev_days")
    ),
}
_PATH = {
    "total_time_s": Origin(
        "The total before this step - what its targets took + what they take now.",
        ("time_before_s", "time_after_s", "time_saved_s", "total_low_s", "total_high_s", "basis"),
    ),
    "speedup": Origin("Total at the start / total now, per item of the run's work.", ("total_time_s", "basis")),
    "step_speedup": Origin("Total before / after this step, per item.", ("total_time_s", "time_saved_s", "basis")),
}
_CAPTURE = {
    "predicted_time_s": Origin(
        "Calls x the expected time of the operator on this machine.",
        ("op", "count", "limiter", "predicted_time_low_s", "predicted_time_high_s"),
    ),
    "flop": Origin("Calls x the operator's formula; a fused multiply-add is 2 FLOP.", ("op", "count", "name")),
    "activation_bytes": Origin("Tensors that autograd saves, each storage once, without parameters.", ("kind",)),
}
_COMPARISON = {
    "before_s": Origin("Median of the samples before.", ("before_samples", "noise", "timing", "cache"), context=True),
    "after_s": Origin("Median of the samples after.", ("after_samples", "noise", "timing", "cache"), context=True),
    "change": Origin(
        "After / before - 1. The interval holds for all rows together with 95 %: noise of the samples, and the drift "
        "of a machine from run to run.",
        ("before_s", "after_s", "low", "high", "noise", "drift", "smallest", "basis"),
    ),
    "ratio": Origin("Geometric mean of after / before over these rows.", ("rows", "low", "high")),
}
_PROJECTION = {
    "projected_time_s": Origin(
        "Time here x a ratio that the basis names: of the predictions on both machines, or without an operator of the "
        "ceilings that limit it.",
        ("time_s", "limiter", "basis", "low", "high"),
    ),
    "speedup": Origin("Time here / time there.", ("time_s", "projected_time_s")),
}
_VALIDATION = {
    "mape": Origin("Mean of |predicted / measured - 1| over the rows.", ("rows",)),
    "median_ape": Origin("Median of |predicted / measured - 1|.", ("rows",)),
    "p90_ape": Origin("90th percentile of |predicted / measured - 1|.", ("rows",)),
    "bias": Origin("Mean of predicted / measured - 1.", ("rows",)),
    "width_80": Origin("Median of the high end / the low end of the 80 % intervals.", ("rows",)),
    "coverage_80": Origin("Share of the measured times that lie in their 80 % interval.", ("rows", "width_80")),
    "bound_mape": Origin("Mean of |bound / measured - 1|: the datasheet roofline as a prediction.", ("rows",)),
    "ratio": Origin("Predicted / measured.", ("predicted_time_s", "measured_time_s")),
}
_BY_COMMAND = {
    "compare": _COMPARISON,
    "project": _PROJECTION,
    "validate": {**_OPERATORS, **_VALIDATION},
    "train": _TRAINING,
    "search train": _TRAINING,
    "search serve": _SERVING,
    "serve": _SERVING,
    "roi": _INVESTMENT,
    "whatif": _PATH,
    "capture": _CAPTURE,
    "diagnose": {**_OPERATORS, **_TRACE},
}


def origins_of(command: str, keys: set[str]) -> dict[str, dict[str, Any]]:
    """Return key -> origin of the numbers in a table, with the inputs that the table has.

    Parameters
    ----------
    command : that made the table.
    keys : of its columns.
    """
    known = _BY_COMMAND.get(command, _OPERATORS)
    found = {}
    for key, origin in known.items():
        if key in keys:
            facts = asdict(origin)
            facts["inputs"] = [name for name in origin.inputs if name in keys]
            facts["terms"] = origin.terms if origin.terms in keys else ""
            found[key] = facts
    return found


def error_meanings() -> dict[str, str]:
    """Return source of error -> meaning, for the shares of an interval."""
    return {str(source): text for source, text in MEANINGS.items()}
