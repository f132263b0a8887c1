"""Plot of training steps: terms as stacked bars; of one step also the passes of its pipeline and memory over time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.collections import PolyCollection
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from perfmodel.core.units import format_si
from perfmodel.render.plots import plot
from perfmodel.render.plots.figure import new_figure, printable
from perfmodel.training.result import TrainingStep
from perfmodel.training.search import Search
from perfmodel.training.step_rows import plan_text
from perfmodel.training.study import Study
from perfmodel.training.timeline import MOST_PASSES, Pass, count_passes, held_over_time, pipeline_timeline

#: colour of each term: blue for products and attention, orange for memory, green for exchanges, grey for waiting
COLORS = {
    "products": "#0072B2",
    "attention": "#56B4E9",
    "head": "#5B5EA6",
    "memory_bound": "#E69F00",
    "casts": "#F2C57C",
    "recompute": "#CC79A7",
    "tensor": "#009E73",
    "context": "#6FA800",
    "expert": "#2BB3C0",
    "data": "#2F6B4F",
    "sends": "#B9C94A",
    "optimizer": "#D55E00",
    "compression": "#9C4500",
    "offload": "#8C2D5A",
    "cpu_optimizer": "#F0A0A0",
    "bubble": "#BBBBBB",
    "imbalance": "#A3A3A3",
    "stragglers": "#888888",
    "loading": "#555555",
    "gaps": "#C9A0DC",
    "host": "#DDDDDD",
}
_OTHER = "#000000"
_FORWARD, _BACKWARD = "#7FB8DA", "#E8A15B"
_WEIGHTS = "#8CC9A1"
#: height of a bar, of a row's 1; opacity and hatching of a step that does not fit in memory, and what its label says
_TALL, _PALE, _NO_ROOM = 0.62, 0.4, "does not fit"
_HATCHED: Mapping[str, Any] = {"facecolor": "none", "edgecolor": "0.35", "hatch": "////", "linewidth": 0.0}
_MOST_BARS = 30
#: most letters of a line beside a bar
_LONGEST = 42
#: widths and heights [inches]
_WIDTH, _BAR, _LANE, _MEMORY, _TOP, _LEGEND = 10.0, 0.42, 0.3, 2.2, 0.5, 0.75
_GIB = 2.0**30


@plot.register
def _(study: Study) -> Figure:
    return training_plot(study)


@plot.register
def _(step: TrainingStep) -> Figure:
    return training_plot(Study((step,)))


@plot.register
def _(found: Search) -> Figure:
    return training_plot(Study(tuple(each.step for each in found.best)))


def training_plot(study: Study) -> Figure:
    """Return the terms of steps as stacked bars, and of a single step its pipeline and its memory over time.

    Bars of steps that do not fit in memory are pale and hatched.

    Parameters
    ----------
    study : the steps; of more than 30 the first are drawn.
    """
    steps = study.steps[:_MOST_BARS]
    if len(steps) > 1:
        height = _TOP + _LEGEND + _BAR * len(steps) + 0.3
        figure = new_figure(_WIDTH, height)
        axes = _panel(figure, height, _TOP, _BAR * len(steps), 2.9)
        _bars(axes, steps)
        _legend(figure, steps)
        return figure
    return _single(steps[0])


def _single(step: TrainingStep) -> Figure:
    """Return the figure of one step."""
    passes = _passes(step)
    lanes = max(2, step.plan.pp) * _LANE if passes else 0.0
    height = _TOP + 0.5 + 1.0 + _LEGEND + (lanes + 0.9 + _MEMORY + 0.6 if passes else 0.2)
    figure = new_figure(_WIDTH, height)
    bar = _panel(figure, height, _TOP, 0.5, 1.0)
    _bars(bar, [step])
    _legend(figure, [step], bottom=1.0 - (_TOP + 0.5 + 0.65) / height)
    if passes:
        top = _TOP + 0.5 + 0.8 + _LEGEND
        lane_axes = _panel(figure, height, top, lanes, 1.0)
        _timeline(lane_axes, step, passes)
        if step.memory:
            memory_axes = _panel(figure, height, top + lanes + 0.75, _MEMORY, 1.0)
            _memory(memory_axes, step, passes)
            memory_axes.set_xlim(lane_axes.get_xlim())
    return figure


def _panel(figure: Figure, height: float, top: float, tall: float, left: float) -> Axes:
    """Return axes at a place that is given in inches from the top."""
    place = (left / _WIDTH, 1.0 - (top + tall) / height, (_WIDTH - left - 0.35) / _WIDTH, tall / height)
    return figure.add_axes(place)


def _bars(axes: Axes, steps: Sequence[TrainingStep]) -> None:
    """Draw one stacked bar for each step, the first at the top, with its total and interval."""
    for row, step in enumerate(steps):
        _bar(axes, row, step)
    several = len(steps) > 1
    axes.set_yticks(range(len(steps)))
    axes.set_yticklabels([_bar_name(step, steps) for step in steps] if several else [""], fontsize=8)
    axes.set_ylim(len(steps) - 0.4, -0.6)
    room = 1.28 if all(map(_may_run, steps)) else 1.5
    axes.set_xlim(0.0, room * max(step.high_s for step in steps))
    axes.set_xlabel("time of a step [s]", fontsize=8)
    axes.tick_params(labelsize=8)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    first = steps[0]
    own = "" if several else f": {plan_text(first.plan, first.dp)}"
    where = f" on {first.cluster.name}" if len({step.cluster.name for step in steps}) == 1 else ""
    title = f"{first.model}{where}, {first.plan.dtype}{own}"
    axes.set_title(printable(title, 100), fontsize=10, loc="left")


def _bar(axes: Axes, row: int, step: TrainingStep) -> None:
    """Draw the terms of one step with its total and interval; the bar is pale and hatched where it does not fit."""
    may_run, start = _may_run(step), 0.0
    for name in _names([step]):
        time = step.terms_s[name]
        axes.barh(
            row, time, left=start, height=_TALL, color=COLORS.get(name, _OTHER), edgecolor="white", linewidth=0.4,
            alpha=1.0 if may_run else _PALE,
        )  # fmt: skip
        start += time
    if not may_run:
        axes.barh(row, step.time_s, height=_TALL, gid=_NO_ROOM, **_HATCHED)
    axes.errorbar(
        step.time_s, row, xerr=[[step.time_s - step.low_s], [step.high_s - step.time_s]], color="black", capsize=3,
        linewidth=1.0,
    )  # fmt: skip
    label = f"{format_si(step.time_s, 's', 3)}, MFU {100 * step.mfu:.0f} %{'' if may_run else ', ' + _NO_ROOM}"
    axes.annotate(label, (step.high_s, row), (5, 0), textcoords="offset points", va="center", fontsize=8)


def _may_run(step: TrainingStep) -> bool:
    """Return whether nothing says that a step does not fit in memory, as a step without memory."""
    return step.fits is not False


def _bar_name(step: TrainingStep, steps: Sequence[TrainingStep]) -> str:
    """Return the plan of a step, with what differs between the steps; below its cluster, where there are several."""
    name = plan_text(step.plan, step.dp)
    for key in ("batch", "seq"):
        if len({getattr(other.plan, key) for other in steps}) > 1:
            name += f" {key}{getattr(step.plan, key)}"
    if len({other.cluster.name for other in steps}) > 1:
        return f"{printable(step.cluster.name, _LONGEST)}\n{printable(name, _LONGEST)}"
    return printable(name, _LONGEST)


def _names(steps: Sequence[TrainingStep]) -> list[str]:
    """Return the terms that some step has, in the order of their colours."""
    present = {name for step in steps for name in step.terms_s}
    return [*(name for name in COLORS if name in present), *sorted(present - COLORS.keys())]


def _legend(figure: Figure, steps: Sequence[TrainingStep], bottom: float = 0.0) -> None:
    handles: list[Patch | Line2D] = [
        Patch(color=COLORS.get(name, _OTHER), label=name.replace("_", " ")) for name in _names(steps)
    ]
    if not all(map(_may_run, steps)):
        handles.append(Patch(label=f"{_NO_ROOM} in memory", **_HATCHED))
    handles.append(Line2D([], [], color="black", lw=1.0, marker="|", ms=7, label="80 % interval"))
    figure.legend(
        handles=handles,
        loc="upper center" if bottom else "lower center",
        bbox_to_anchor=(0.5, bottom),
        ncol=7,
        fontsize=8,
        frameon=False,
    )


def _passes(step: TrainingStep) -> tuple[Pass, ...]:
    """Return the passes of a step, or none where there are too many."""
    plan = step.plan
    if count_passes(plan, step.micro_batches) > MOST_PASSES:
        return ()
    times = (step.stage_forward_s, step.stage_backward_s, step.stage_weights_s)
    return pipeline_timeline(plan, step.micro_batches, *times)


def _timeline(axes: Axes, step: TrainingStep, passes: Sequence[Pass]) -> None:
    """Draw each pass as a rectangle in the lane of its GPU."""
    split = any(one.backward and not one.frees for one in passes)
    kinds = [
        ("forward (blue)", _FORWARD, [one for one in passes if not one.backward]),
        ("backward (orange)", _BACKWARD, [one for one in passes if one.backward and one.frees != split]),
        ("gradients of weights (green)", _WEIGHTS, [one for one in passes if one.backward and one.frees and split]),
    ]
    for _, color, own in kinds:
        boxes = [_box(one) for one in own]
        edge = "white" if len(passes) < 100 * step.plan.pp else "none"
        axes.add_collection(PolyCollection(boxes, facecolors=color, edgecolors=edge, linewidths=0.3))
    width = max(one.end_s for one in passes)
    _number(axes, passes, width)
    axes.set_xlim(0.0, 1.02 * max(width, step.time_s))
    axes.set_ylim(step.plan.pp - 0.4, -0.6)
    axes.set_yticks(range(step.plan.pp) if step.plan.pp <= 16 else [0, step.plan.pp - 1])
    axes.set_ylabel("stage", fontsize=8)
    axes.set_xlabel("time [s]", fontsize=8)
    axes.tick_params(labelsize=8)
    axes.axvline(step.time_s, color="black", linewidth=1.0, linestyle=":")
    axes.set_title(
        f"Micro batches by stage: {', '.join(name for name, _, own in kinds if own)}; "
        "dotted: end of the step",
        fontsize=9, loc="left",
    )  # fmt: skip


def _box(one: Pass) -> list[tuple[float, float]]:
    low, high = one.gpu - 0.42, one.gpu + 0.42
    return [(one.start_s, low), (one.end_s, low), (one.end_s, high), (one.start_s, high)]


def _number(axes: Axes, passes: Sequence[Pass], width: float) -> None:
    """Write the number of the micro batch into passes that are wide enough."""
    for one in passes:
        if (one.end_s - one.start_s) / width > 0.018:
            middle = (one.start_s + one.end_s) / 2.0
            axes.text(middle, one.gpu, str(one.micro_batch + 1), ha="center", va="center", fontsize=6)


def _memory(axes: Axes, step: TrainingStep, passes: Sequence[Pass]) -> None:
    """Draw what the first and the last stage hold over the step, with the capacity of a GPU."""
    memory = step.memory
    assert memory is not None
    shown = {"first stage": memory.stages[0], "last stage": memory.stages[-1]}
    if len(memory.stages) == 1:
        shown = {"each GPU": memory.stages[0]}
    for (name, stage), color in zip(shown.items(), ("#0072B2", "#D55E00"), strict=False):
        times, held = held_over_time(stage.parts, stage.stage, passes, step.time_s)
        axes.step(times, held / _GIB, where="post", color=color, linewidth=1.1, label=name)
    axes.axhline(memory.capacity_bytes / _GIB, color="black", linewidth=1.0, linestyle="--", label="memory of a GPU")
    axes.set_ylim(0.0, 1.12 * max(memory.capacity_bytes, memory.high_bytes) / _GIB)
    axes.set_xlabel("time [s]", fontsize=8)
    axes.set_ylabel("memory [GiB]", fontsize=8)
    axes.tick_params(labelsize=8)
    axes.legend(fontsize=8, loc="best", ncol=3, frameon=True)
    axes.set_title("Memory over the step", fontsize=9, loc="left")
