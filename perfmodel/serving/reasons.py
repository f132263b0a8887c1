"""Why deployments are impossible: those with one reason together, shown by the one of them that comes nearest."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from perfmodel.serving.study import Outcome

#: what the reason of an impossible deployment begins with
_PLACE = "deployment: "


@dataclass(frozen=True)
class Reason:
    """Deployments that are impossible for one reason.

    Attributes
    ----------
    outcomes : at least one.
    """

    outcomes: tuple[Outcome, ...]

    @property
    def count(self) -> int:
        """How many they are."""
        return len(self.outcomes)

    @property
    def shown(self) -> Outcome:
        """The one with most GPUs, and of these the last: it comes nearest to one that is possible."""
        most = max(outcome.spec.parallel.gpus for outcome in self.outcomes)
        return [outcome for outcome in self.outcomes if outcome.spec.parallel.gpus == most][-1]

    @property
    def text(self) -> str:
        """The reason of the one that is shown."""
        return self.shown.fault.removeprefix(_PLACE)

    @property
    def of_one(self) -> str:
        """The name of the one that is shown, where the figures of the others differ; else empty."""
        return self.shown.spec.name if len({outcome.fault for outcome in self.outcomes}) > 1 else ""


def reasons_of(outcomes: Sequence[Outcome]) -> list[Reason]:
    """Return why deployments are impossible, the reason of most of them first.

    A reason is what a message says before its figures: "the model does not fit".
    """
    alike: dict[str, list[Outcome]] = {}
    for outcome in outcomes:
        if outcome.fault:
            alike.setdefault(outcome.fault.removeprefix(_PLACE).partition(": ")[0], []).append(outcome)
    return [Reason(tuple(group)) for group in sorted(alike.values(), key=len, reverse=True)]
