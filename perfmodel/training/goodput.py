"""How much of a long run is useful: failures, restarts, and how often to save (Young 1974, Daly 2006)."""

from __future__ import annotations

import math
from dataclasses import dataclass

from perfmodel.core.report import Reportable
from perfmodel.core.units import DAY_S
from perfmodel.errors import UsageError

#: mean time between failures of one GPU with its share of the host and network: 419 unexpected interruptions of 16,384
#: GPUs in 54 days (Llama Team 2024, "The Llama 3 Herd of Models", arXiv 2407.21783, section 3.3.4)
GPU_MTBF_S = 54 * DAY_S * 16384 / 419


@dataclass(frozen=True)
class Goodput(Reportable):
    """A long run with failures and checkpoints.

    Attributes
    ----------
    gpus : GPUs of the run; the failure of one stops all.
    mtbf_s : mean time between failures of all of them [s].
    checkpoint_bytes : of one checkpoint.
    pause_s : time that a checkpoint stops the training [s].
    write_s : time until it is safe; the next one waits for it [s].
    restart_s : time from a failure until training goes on [s].
    interval_s : time between two checkpoints [s].
    fraction : useful share of the time, 0 to 1.
    failures_per_day : of the run.
    """

    gpus: int
    mtbf_s: float
    checkpoint_bytes: float
    pause_s: float
    write_s: float
    restart_s: float
    interval_s: float
    fraction: float
    failures_per_day: float

    @property
    def lost(self) -> float:
        """Share of the time that saving, failing and starting again take."""
        return 1.0 - self.fraction


def young_interval_s(pause_s: float, mtbf_s: float) -> float:
    """Return the best time between checkpoints to first order, sqrt(2 C M) (Young 1974) [s].

    >>> young_interval_s(60.0, 12000.0)
    1200.0
    """
    _positive(pause_s=pause_s, mtbf_s=mtbf_s)
    return math.sqrt(2.0 * pause_s * mtbf_s)


def daly_interval_s(pause_s: float, mtbf_s: float) -> float:
    """Return the best time between checkpoints (Daly 2006, "A higher order estimate of the optimum ...").

    tau = sqrt(2 C M) (1 + sqrt(C / (2 M)) / 3 + C / (18 M)) - C for C < 2 M, else M [s].
    """
    _positive(pause_s=pause_s, mtbf_s=mtbf_s)
    if pause_s >= 2.0 * mtbf_s:
        return mtbf_s
    share = pause_s / (2.0 * mtbf_s)
    return young_interval_s(pause_s, mtbf_s) * (1.0 + math.sqrt(share) / 3.0 + share / 9.0) - pause_s


def useful_fraction(interval_s: float, pause_s: float, restart_s: float, mtbf_s: float) -> float:
    """Return the useful share of a run whose failures come at random (Daly 2006, complete model).

    A run of useful time T takes T / tau x M exp(R / M) (exp((tau + C) / M) - 1), with the time between checkpoints tau,
    the pause C, the restart R and the mean time between failures M; so the share is tau over M exp(R / M) (...).

    >>> round(useful_fraction(1200.0, 60.0, 300.0, 1e12), 6)
    0.952381
    """
    _positive(interval_s=interval_s, mtbf_s=mtbf_s)
    exponent = (interval_s + pause_s) / mtbf_s
    if exponent + restart_s / mtbf_s > 500.0:
        return 0.0
    return interval_s / (mtbf_s * math.exp(restart_s / mtbf_s) * math.expm1(exponent))


def goodput(
    checkpoint_bytes: float,
    gpus: int,
    *,
    store_bytes_per_s: float,
    copy_bytes_per_s: float = math.inf,
    synchronous: bool = True,
    restart_s: float = 600.0,
    gpu_mtbf_s: float = GPU_MTBF_S,
    interval_s: float | None = None,
) -> Goodput:
    """Return the useful share of a long run.

    Parameters
    ----------
    checkpoint_bytes : of one checkpoint (`perfmodel.training.memory.checkpoint_bytes`).
    gpus : GPUs of the run.
    store_bytes_per_s : bandwidth of the store for all of them together [B/s].
    copy_bytes_per_s : from one GPU to its host [B/s]; a checkpoint that is not synchronous pauses for that copy only.
    synchronous : whether training waits until the checkpoint is written.
    restart_s : until training goes on after a failure, without the work that is lost [s].
    gpu_mtbf_s : mean time between failures of one GPU [s].
    interval_s : time between checkpoints [s]; None for the best one (Daly), but no less than writing takes.

    Raises
    ------
    UsageError
        For a figure that is not above 0.
    """
    _positive(checkpoint_bytes=checkpoint_bytes, gpus=gpus, store_bytes_per_s=store_bytes_per_s, gpu_mtbf_s=gpu_mtbf_s)
    _positive(copy_bytes_per_s=copy_bytes_per_s)
    if not 0 <= restart_s < math.inf:
        raise UsageError(f"restart_s = {restart_s:g} is not a time.", place="goodput")
    write = checkpoint_bytes / store_bytes_per_s
    pause = write if synchronous else checkpoint_bytes / gpus / copy_bytes_per_s
    mtbf = gpu_mtbf_s / gpus
    best = daly_interval_s(pause, mtbf) if pause > 0 else write
    chosen = max(best, 0.0 if synchronous else write) if interval_s is None else interval_s
    _positive(interval_s=chosen)
    return Goodput(
        gpus=gpus,
        mtbf_s=mtbf,
        checkpoint_bytes=checkpoint_bytes,
        pause_s=pause,
        write_s=write,
        restart_s=restart_s,
        interval_s=chosen,
        fraction=useful_fraction(chosen, pause, restart_s, mtbf),
        failures_per_day=DAY_S / mtbf,
    )


def _positive(**values: float) -> None:
    for name, value in values.items():
        if not value > 0 or math.isnan(value):
            raise UsageError(f"{name} = {value:g} is not above 0.", place="goodput")
