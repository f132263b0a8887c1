"""Training steps side by side, with what they cost."""

from __future__ import annotations

from dataclasses import dataclass

from perfmodel.core.report import Reportable
from perfmodel.core.units import HOUR_S
from perfmodel.errors import UsageError
from perfmodel.training.fitting import Change
from perfmodel.training.goodput import Goodput
from perfmodel.training.mixed import MixedStep
from perfmodel.training.result import TrainingStep

#: tokens a parameter for which the loss of a given amount of compute is lowest (Hoffmann et al. 2022, arXiv 2203.15556)
TOKENS_PER_PARAMETER = 20.0


@dataclass(frozen=True)
class Study(Reportable):
    """Training steps, and the run that they make up.

    Attributes
    ----------
    steps : the steps, in the order in which they were asked for.
    tokens : of a run; None for 20 a parameter where there is a price.
    price_per_gpu_hour : None for no costs.
    changes : changes after which the only step fits, if it does not.
    goodput : of the run of the only step, if it was asked for.
    explain : whether tables for people list the terms.
    mixed : the step of all clusters together, if it was asked for.
    refused : why the combinations of ranges that cannot run cannot.
    """

    steps: tuple[TrainingStep, ...]
    tokens: float | None = None
    price_per_gpu_hour: float | None = None
    changes: tuple[Change, ...] = ()
    goodput: Goodput | None = None
    explain: bool = False
    mixed: MixedStep | None = None
    refused: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for name in ("tokens", "price_per_gpu_hour"):
            value = getattr(self, name)
            if value is not None and not 0 < value < float("inf"):
                raise UsageError(f"{name} = {value:g} is not above 0.", place="train")

    @property
    def priced(self) -> bool:
        """Whether costs are known."""
        return self.price_per_gpu_hour is not None

    @property
    def useful(self) -> float:
        """Useful share of a run's time."""
        return self.goodput.fraction if self.goodput else 1.0

    def run_tokens(self, step: TrainingStep) -> float | None:
        """Return the tokens of a run: those that were asked for, else 20 a parameter where there is a price."""
        if self.tokens is not None or not self.priced:
            return self.tokens
        return TOKENS_PER_PARAMETER * step.parameters

    def run_s(self, step: TrainingStep) -> float | None:
        """Return the time of a run [s]."""
        tokens = self.run_tokens(step)
        return None if tokens is None else tokens / step.tokens_per_s / self.useful

    def cost(self, step: TrainingStep, time_s: float | None) -> float | None:
        """Return the cost of some time on all GPUs, in the currency of the price."""
        if self.price_per_gpu_hour is None or time_s is None:
            return None
        return self.price_per_gpu_hour * step.cluster.gpus * time_s / HOUR_S
