"""How published set-ups of NVIDIA's tables stand in a search over the same model, machine and batch."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from training_fit import Rows, table_of

from perfmodel.training.framework import nearest_framework
from perfmodel.training.plan import TrainingPlan
from perfmodel.training.published_run import PublishedRun, measured_time
from perfmodel.training.result import TrainingStep
from perfmodel.training.search import full_step, search
from perfmodel.training.space import AXES, default_space

#: tables whose set-ups were chosen to be fast
TUNED = ("bridge_dense", "nemo_launcher")
#: those that fine-tune on packed samples have other sequences than their plans say
_PACKED = "_sft"


@dataclass(frozen=True)
class Standing:
    """A published set-up in its search.

    Attributes
    ----------
    row : the first run with it.
    own, best : its prediction, and that of the best set-up.
    """

    row: PublishedRun
    own: TrainingStep
    best: TrainingStep

    @property
    def over(self) -> float:
        """Its predicted time over that of the best set-up, less 1; negative where only fragmentation keeps it out."""
        return self.own.time_s / self.best.time_s - 1.0

    @property
    def first(self) -> bool:
        """Whether the interval cannot tell it from the best one."""
        return self.own.own_interval_s[0] <= self.best.own_interval_s[1]

    @property
    def off(self) -> float:
        """Its predicted over its measured time, less 1: whether it is the published set-up that is predicted wrong."""
        return self.own.time_s / measured_time(self.row.run) - 1.0

    @property
    def text(self) -> str:
        """The set-up, and the part of the step in which it differs most from the best one, as a clause."""
        plan, best = self.own.plan, self.best.plan
        names = [name for name in AXES if getattr(plan, name) != getattr(best, name)]
        terms = {name: time - self.best.terms_s.get(name, 0.0) for name, time in self.own.terms_s.items()}
        part = max(terms, key=lambda name: terms[name])
        share = terms[part] / (self.own.time_s - self.best.time_s)
        return (
            f"{self.row.config.name} on {self.row.cluster.name} in {plan.dtype} ({self.over:.1%}, its own time "
            f"predicted {self.off:+.1%} off): {_sizes(plan, names)} against {_sizes(best, names)}, and the part "
            f"{part!r} is {share:.0%} of the difference"
        )


def _sizes(plan: TrainingPlan, names: Sequence[str]) -> str:
    """Return some sizes of a plan as text."""
    return " ".join(f"{name} {getattr(plan, name)}" for name in names)


def _set_ups(rows: Rows) -> Iterator[PublishedRun]:
    """Yield the first run of each set-up: framework, machine, model and plan."""
    seen = set()
    for row in rows:
        if not table_of(row).startswith(TUNED) or table_of(row).endswith(_PACKED):
            continue
        framework = nearest_framework(row.plan.framework)[0].name
        key = (framework, row.cluster.name, row.config.name, row.plan.changed(framework=""))
        if key not in seen:
            seen.add(key)
            yield row


def standings(rows: Rows) -> list[Standing]:
    """Return how each published set-up stands among all that a search tries, its own sizes included."""
    found = []
    for row in _set_ups(rows):
        usual = default_space(row.config, row.cluster, row.plan)
        given = {axis: sorted({*getattr(usual, axis), getattr(row.plan, axis)}, key=str) for axis in AXES}
        space = default_space(row.config, row.cluster, row.plan, **given)
        best = search(row.config, [row.cluster], row.plan, space, top=1).best[0].step
        own = full_step(row.config, row.cluster, row.plan)
        found.append(Standing(row, own, best))
    return found


def standings_text(found: Sequence[Standing]) -> str:
    """Return how many set-ups are near the best, and which are not, as a sentence."""
    near = sum(each.over <= 0.05 for each in found)
    first = sum(each.first for each in found)
    behind = sorted((each for each in found if each.over > 0.05), key=lambda each: each.over)
    told = f" Behind it: {'; '.join(each.text for each in behind)}." if behind else ""
    return (
        f"Of {len(found)} set-ups that NVIDIA published for dense models, {near} are predicted within 5 % of the best "
        f"that a search finds, and the interval cannot tell {first} from it.{told}"
    )
