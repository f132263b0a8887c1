"""What-ifs of a predicted step: stragglers, loaders that do not keep up, compressed gradients."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping

from perfmodel.core.units import format_si
from perfmodel.prediction.stretch import Stretch
from perfmodel.training.compression import Compression, compressed_data_s
from perfmodel.training.data_loading import data_loading
from perfmodel.training.result import TrainingStep
from perfmodel.training.setup import setup_of
from perfmodel.training.step import pipeline_gpus, slowest_gpu
from perfmodel.training.stragglers import slowdown
from perfmodel.training.unmeasured import stretches
from perfmodel.training.update import exchanged_time
from perfmodel.workloads.model_config import ModelConfig


def with_stragglers(step: TrainingStep, deviation: float) -> TrainingStep:
    """Return a step in which every GPU waits for the slowest of all, with the term ``stragglers``.

    A longer step waits longer: the factor holds for both ends of an interval as well.

    Raises
    ------
    UsageError
        For a deviation below 0.
    """
    factor = slowdown(step.cluster.gpus, deviation)
    note = f"The slowest of {step.cluster.gpus} GPUs, with {deviation:.1%} of jitter, sets the step: {factor:.3f} x."
    terms = _with_term(step, "stragglers", (factor - 1.0) * step.time_s)
    return _mapped(step, terms, lambda time_s: factor * time_s, note)


def with_loading(step: TrainingStep, workers: int, rate_per_s: float) -> TrainingStep:
    """Return a step that waits for its samples, with the term ``loading``.

    No step is shorter than its samples take to load, neither end of an interval: max(t, samples / (workers rate)).

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
    terms = _with_term(step, "loading", loading.starved_s)
    return _mapped(step, terms, lambda time_s: max(time_s, step.plan.batch / loading.loaded_per_s), note)


def with_compression(config: ModelConfig, step: TrainingStep, text: str) -> TrainingStep:
    """Return a step whose data parallel ranks exchange compressed gradients, with the term ``compression``.

    Its interval is that of its own terms: where hosts or links that nobody measured made the exchange unsure, less of
    it makes the step surer (`stretches`). What runs of known machines differ by stays the same share of the step.

    Raises
    ------
    UsageError
        For a method that is none, or a plan that shares out weights or gradients.
    """
    method = Compression.parse(text)
    cost = compressed_data_s(config, step, method)
    terms = {**step.terms_s, "data": cost.exchange_s, "compression": cost.kernels_s}
    terms = {name: time for name, time in terms.items() if time}
    note = (
        f"{method.text}: {cost.ratio:.3g} times fewer bytes of gradients; exchange {format_si(cost.exchange_s, 's')} "
        f"exposed, kernels {format_si(cost.kernels_s, 's')}; it may need more steps to the same loss."
    )
    setup = setup_of(config, step.cluster, step.plan)
    slowest, *_ = slowest_gpu(setup, pipeline_gpus(setup))
    before = stretches(setup, step.terms_s, lambda slower: exchanged_time(setup, slowest, slower))
    after = stretches(setup, terms, lambda slower: compressed_data_s(config, step, method, slower).exchange_s)
    saved = step.terms_s.get("data", 0.0) - cost.exchange_s - cost.kernels_s
    time_s = step.time_s - saved

    def moved(interval: tuple[float, float], which: int) -> tuple[float, float]:
        stretch = Stretch.between(step.time_s, *interval)
        return stretch.without(before[which]).beside(after[which]).around(time_s)

    low_s, high_s = moved((step.low_s, step.high_s), 0)
    return dataclasses.replace(
        step,
        terms_s=terms,
        time_s=time_s,
        low_s=low_s,
        high_s=high_s,
        own_interval_s=moved(step.own_interval_s, 1),
        laboratory_interval_s=moved(step.laboratory_interval_s, 0),
        notes=(*step.notes, note),
    )


def _with_term(step: TrainingStep, term: str, time_s: float) -> Mapping[str, float]:
    """Return the terms of a step with one more, unless it takes no time [s]."""
    return {**step.terms_s, term: time_s} if time_s else step.terms_s


def _mapped(
    step: TrainingStep, terms_s: Mapping[str, float], longer: Callable[[float], float], note: str
) -> TrainingStep:
    """Return a step whose time, and both ends of each interval, become longer by one rule [s]."""
    own, laboratory = step.own_interval_s, step.laboratory_interval_s
    return dataclasses.replace(
        step,
        terms_s=terms_s,
        time_s=longer(step.time_s),
        low_s=longer(step.low_s),
        high_s=longer(step.high_s),
        own_interval_s=(longer(own[0]), longer(own[1])),
        laboratory_interval_s=(longer(laboratory[0]), longer(laboratory[1])),
        notes=(*step.notes, note),
    )
