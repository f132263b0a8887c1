"""What-ifs of a predicted step: stragglers, loaders that do not keep up, compressed gradients."""

from __future__ import annotations

import dataclasses

from perfmodel.core.units import format_si
from perfmodel.training.compression import Compression, compressed_data_s
from perfmodel.training.data_loading import data_loading
from perfmodel.training.result import TrainingStep
from perfmodel.training.stragglers import slowdown
from perfmodel.workloads.model_config import ModelConfig


def with_stragglers(step: TrainingStep, deviation: float) -> TrainingStep:
    """Return a step in which every GPU waits for the slowest of all, with the term ``stragglers``.

    Raises
    ------
    UsageError
        For a deviation below 0.
    """
    factor = slowdown(step.cluster.gpus, deviation)
    note = f"The slowest of {step.cluster.gpus} GPUs, with {deviation:.1%} of jitter, sets the step: {factor:.3f} x."
    return _longer(step, "stragglers", (factor - 1.0) * step.time_s, note)


def with_loading(step: TrainingStep, workers: int, rate_per_s: float) -> TrainingStep:
    """Return a step that waits for its samples, with the term ``loading``.

    Raises
    ------
    UsageError
        For workers or a rate that are not above 0.
    """
    loading = data_loading(step.time_s, step.plan.batch, workers, rate_per_s)
    if loading.starved_s:
        note = f"Loaders starve the GPUs; {loading.workers_needed} would keep up."
    else:
        note = f"Loaders keep up: {loading.loaded_per_s:.4g} sequences a second for {loading.needed_per_s:.4g}."
    return _longer(step, "loading", loading.starved_s, note)


def with_compression(config: ModelConfig, step: TrainingStep, text: str) -> TrainingStep:
    """Return a step whose data parallel ranks exchange compressed gradients, with the term ``compression``.

    Raises
    ------
    UsageError
        For a method that is none, or a plan that shares out weights or gradients.
    """
    method = Compression.parse(text)
    cost = compressed_data_s(config, step, method)
    terms = {**step.terms_s, "data": cost.exchange_s, "compression": cost.kernels_s}
    saved = step.terms_s.get("data", 0.0) - cost.exchange_s - cost.kernels_s
    note = (
        f"{method.text}: {cost.ratio:.3g} times fewer bytes of gradients; exchange {format_si(cost.exchange_s, 's')} "
        f"exposed, kernels {format_si(cost.kernels_s, 's')}; it may need more steps to the same loss."
    )
    longer = dataclasses.replace(step, terms_s={name: time for name, time in terms.items() if time})
    return _moved(longer, -saved, note)


def _longer(step: TrainingStep, term: str, time_s: float, note: str) -> TrainingStep:
    """Return a step with one more term."""
    terms = {**step.terms_s, term: time_s} if time_s else step.terms_s
    return _moved(dataclasses.replace(step, terms_s=terms), time_s, note)


def _moved(step: TrainingStep, time_s: float, note: str) -> TrainingStep:
    """Return a step that takes longer by a time that is taken as known."""
    return dataclasses.replace(
        step,
        time_s=step.time_s + time_s,
        low_s=step.low_s + time_s,
        high_s=step.high_s + time_s,
        own_interval_s=(step.own_interval_s[0] + time_s, step.own_interval_s[1] + time_s),
        laboratory_interval_s=(step.laboratory_interval_s[0] + time_s, step.laboratory_interval_s[1] + time_s),
        notes=(*step.notes, note),
    )
