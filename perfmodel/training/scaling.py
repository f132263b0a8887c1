"""How a training run scales: strong (the same batch on more GPUs) and weak (a batch that grows with them)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from perfmodel.cluster.cluster import Cluster
from perfmodel.core.report import Reportable
from perfmodel.errors import UsageError
from perfmodel.investment.amdahl import ScalingFit, fit_scaling, gustafson_speedup
from perfmodel.training.plan import TrainingPlan
from perfmodel.training.result import TrainingStep
from perfmodel.training.step import train
from perfmodel.workloads.model_config import ModelConfig


@dataclass(frozen=True)
class Scaling(Reportable):
    """A training run on several numbers of GPUs.

    Attributes
    ----------
    weak : whether the batch grows with the GPUs; it stays the same otherwise.
    steps : one for each number of GPUs, the smallest first.
    speedups : in tokens per second over the smallest.
    efficiencies : speedup over the ratio of GPUs.
    serial_fraction : of Amdahl's law for strong scaling, of Gustafson's for weak scaling, fitted to all points.
    fit : Amdahl's fit of strong scaling; None for weak scaling.
    """

    weak: bool
    steps: tuple[TrainingStep, ...]
    speedups: tuple[float, ...]
    efficiencies: tuple[float, ...]
    serial_fraction: float
    fit: ScalingFit | None = None

    def speedup(self, factor: float) -> float:
        """Return the expected speedup on ``factor`` times as many GPUs as the smallest number."""
        return float(self.fit.speedup(factor) if self.fit else gustafson_speedup(self.serial_fraction, factor))


def scaling(
    config: ModelConfig, cluster: Cluster, plan: TrainingPlan, gpus: Sequence[int], *, weak: bool = False
) -> Scaling:
    """Return how the same plan scales over data parallel ranks.

    Strong scaling keeps the batch: 1 / S = f + (1 - f) / n (Amdahl). Weak scaling multiplies it by the ratio of GPUs:
    S = n - f (n - 1) (Gustafson).

    Parameters
    ----------
    config : the shapes of the model.
    cluster : its kind of GPUs and network; their number is replaced.
    plan : how it is trained on the smallest number of GPUs.
    gpus : numbers of GPUs, two at least.
    weak : whether the batch grows with the GPUs.

    Raises
    ------
    UsageError
        For fewer than two numbers of GPUs, and where a plan cannot run on one of them.
    """
    counts = sorted(set(gpus))
    if len(counts) < 2:
        raise UsageError("scaling needs two numbers of GPUs.", place="scaling", remedy="Give 64, 128, 256.")
    least = counts[0]
    steps = [
        train(config, cluster.resized(count), plan.changed(batch=plan.batch * count // least) if weak else plan)
        for count in counts
    ]
    ratios = [count / least for count in counts]
    speedups = [step.tokens_per_s / steps[0].tokens_per_s for step in steps]
    efficiencies = tuple(speedup / ratio for speedup, ratio in zip(speedups, ratios, strict=True))
    if not weak:
        fit = fit_scaling(ratios, speedups)
        return Scaling(False, tuple(steps), tuple(speedups), efficiencies, fit.serial_fraction, fit)
    # least squares of n - S = f (n - 1) through 0
    rest = [(ratio - speedup, ratio - 1.0) for ratio, speedup in zip(ratios, speedups, strict=True)]
    fraction = sum(lost * more for lost, more in rest) / sum(more * more for _, more in rest)
    return Scaling(True, tuple(steps), tuple(speedups), efficiencies, fraction)
