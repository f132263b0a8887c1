"""How published set-ups of NVIDIA's tables stand in a search over the same model, machine and batch."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from training_fit import Rows, table_of

from perfmodel.training.framework import nearest_framework
from perfmodel.training.published_run import PublishedRun, measured_time
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
    over : its predicted time over that of the best set-up, less 1; negative where only fragmentation keeps it out.
    first : whether the interval cannot tell it from the best one.
    off : its predicted over its measured time, less 1: whether it is the published set-up that is predicted wrong.
    """

    row: PublishedRun
    over: float
    first: bool
    off: float


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
        off = own.time_s / measured_time(row.run) - 1.0
        found.append(Standing(row, own.time_s / best.time_s - 1.0, own.low_s <= best.high_s, off))
    return found


def standings_text(found: Sequence[Standing]) -> str:
    """Return how many set-ups are near the best, and which are not, as a sentence."""
    near = sum(each.over <= 0.05 for each in found)
    first = sum(each.first for each in found)
    behind = ", ".join(
        f"{each.row.config.name} on {each.row.cluster.name} in {each.row.plan.dtype} ({each.over:.1%}, its own time "
        f"predicted {each.off:+.1%} off)"
        for each in sorted(found, key=lambda each: each.over)
        if each.over > 0.05
    )
    return (
        f"Of {len(found)} set-ups that NVIDIA published for dense models, {near} are predicted within 5 % of the best "
        f"that a search finds, and the interval cannot tell {first} from it. Behind it are {behind}."
    )
