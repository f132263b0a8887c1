"""When reading and decoding samples starves the GPUs."""

from __future__ import annotations

import math
from dataclasses import dataclass

from perfmodel.core.report import Reportable
from perfmodel.errors import UsageError


@dataclass(frozen=True)
class Loading(Reportable):
    """The loaders of a training run beside its steps.

    Attributes
    ----------
    needed_per_s : samples that all GPUs consume in a second, if nothing holds them up.
    loaded_per_s : samples that all loaders make in a second.
    starved_s : time that each step waits for samples, once the prefetched ones are used up [s].
    starves_after_s : time until then [s]; inf if it never comes.
    workers_needed : loaders that would keep up.
    """

    needed_per_s: float
    loaded_per_s: float
    starved_s: float
    starves_after_s: float
    workers_needed: int


def data_loading(step_s: float, samples: int, workers: int, rate_per_s: float, prefetched: int = 0) -> Loading:
    """Return whether loaders keep up with the GPUs.

    A step needs ``samples`` and lasts max(t, samples / (workers rate)); ``prefetched`` samples lie ready at the start
    and are used up at the difference of the rates.

    Parameters
    ----------
    step_s : time of a step without waiting [s].
    samples : samples of a step over all GPUs.
    workers : processes that load, over all hosts.
    rate_per_s : samples that one of them reads and decodes in a second.
    prefetched : samples that lie ready.

    Raises
    ------
    UsageError
        For a figure that is not above 0.

    >>> data_loading(1.0, 1000, 10, 50.0).starved_s
    1.0
    """
    for name, value in {"step_s": step_s, "samples": samples, "workers": workers, "rate_per_s": rate_per_s}.items():
        if not 0 < value < math.inf:
            raise UsageError(f"{name} = {value:g} is not above 0.", place="data loading")
    if prefetched < 0:
        raise UsageError(f"prefetched = {prefetched} is below 0.", place="data loading")
    needed, loaded = samples / step_s, workers * rate_per_s
    return Loading(
        needed_per_s=needed,
        loaded_per_s=loaded,
        starved_s=max(0.0, samples / loaded - step_s),
        starves_after_s=prefetched / (needed - loaded) if needed > loaded else math.inf,
        workers_needed=math.ceil(needed / rate_per_s - 1e-9),
    )
