"""Where the time of a run goes: its dimensions as one bar, what is behind each below it, and the run over time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from perfmodel.core.vocabulary import Dimension
from perfmodel.diagnosis.against import BOTH, STEP, Change, DiagnosisComparison
from perfmodel.diagnosis.decompose import dimension_of
from perfmodel.diagnosis.result import Diagnosis, Evidence
from perfmodel.diagnosis.wall import gap_dimension
from perfmodel.errors import UsageError
from perfmodel.render.plots.diagnosis import styles
from perfmodel.render.plots.diagnosis.timeline import WIDTH, draw_block, timeline_block
from perfmodel.render.plots.figure import new_figure, printable, spread

#: all in inches: what stands left and right of the bars, a row, a bar, the labels above one, an axis, a title
_LEFT, _RIGHT, _ROW, _BAR, _ABOVE, _BELOW, _TITLE = 3.9, 1.75, 0.185, 0.34, 0.32, 0.5, 0.34
#: pieces of evidence shown for each dimension, and entries shown of a comparison
_MOST_EVIDENCE, _MOST_ENTRIES = 4, 14
#: evidence below this share of the whole is not worth a row
_LEAST_SHARE = 0.002
#: a part below this share of the whole is what subtraction of times leaves over
_NOTHING = 1e-6
#: a part below this share of its bar is labelled by its row alone
_LEAST_LABELLED = 0.005
#: letters of a label left of the bars, and the width of one in a bar's label of 7.5 pt [inches]
_LONGEST, _LETTER = 58, 0.067
#: width of the bars' axes
_INCHES = WIDTH - _LEFT - _RIGHT


@dataclass(frozen=True)
class _Row:
    """A labelled row of bars; ``bars`` are pairs of a time [s] and a shade: 1 full, less for before."""

    label: str
    text: str
    style: str
    bars: tuple[tuple[float, float], ...]
    heading: bool = False


def breakdown_plot(diagnosis: Diagnosis, *, with_timeline: bool = True) -> Figure:
    """Return the dimensions of a diagnosis as one stacked bar, the largest evidence of each, and the time line.

    All bars share one axis of time. Where the profile has a time line, the panels of `timeline_plot` follow;
    ``with_timeline=False`` leaves them out.

    Raises
    ------
    UsageError
        When the diagnosis has no time to show.
    """
    total_s = diagnosis.total_s
    if not total_s > 0:
        raise UsageError("there is no time to draw.", place=diagnosis.profile.source)
    rows = _evidence_rows(diagnosis, total_s)
    block = timeline_block(diagnosis) if with_timeline and diagnosis.decomposition is not None else None
    own = _TITLE + _ABOVE + _BAR + 0.12 + _ROW * len(rows) + _BELOW
    figure = new_figure(WIDTH, own + (block.height_inches + 0.1 if block else 0.1))
    whole = "wall time" if diagnosis.decomposition else "time of the rows listed"
    title = f"{whole} {styles.time_text(total_s)}, {printable(Path(diagnosis.profile.source).name, 80)}"
    _title(figure, title.removesuffix(", "))
    axes = _axes(figure, _TITLE, _ABOVE + _BAR + 0.12 + _ROW * len(rows))
    bar_at = _ABOVE + _BAR / 2
    _stacked(axes, [(part.dimension, part.time_s) for part in diagnosis.parts if part.time_s], bar_at, "")
    _rows(axes, rows, _ABOVE + _BAR + 0.12)
    _finish(axes, total_s, "time")
    if block is not None:
        draw_block(figure, block, own)
    return figure


def against_plot(found: DiagnosisComparison) -> Figure:
    """Return two runs on one axis of time: the dimensions before and after, then the entries that changed most.

    Raises
    ------
    UsageError
        When neither side has time to show.
    """
    longest = max(found.before_s, found.after_s)
    if not longest > 0:
        raise UsageError("there is no time to draw.", place=found.before.profile.source)
    rows = _change_rows(found)
    bars = 2 * (_ABOVE + _BAR)
    figure = new_figure(WIDTH, _TITLE + bars + 0.12 + _ROW * len(rows) + _BELOW + 0.1)
    _title(figure, f"before and after: {found.headline}")
    axes = _axes(figure, _TITLE, bars + 0.12 + _ROW * len(rows))
    for place, label in enumerate(("before", "after")):
        times = [(change.name, (change.before_s, change.after_s)[place]) for change in found.dimensions]
        shown = [(name, time) for name, time in times if time]
        _stacked(axes, shown, place * (_ABOVE + _BAR) + _ABOVE + _BAR / 2, label, longest)
    _rows(axes, rows, bars + 0.12)
    _finish(axes, longest, "time of one step" if found.per == STEP else "time")
    return figure


def _title(figure: Figure, text: str) -> None:
    height = figure.get_size_inches()[1]
    figure.text(0.012, 1 - 0.2 / height, text, ha="left", va="center", fontsize=10, parse_math=False)


def _axes(figure: Figure, top: float, tall: float) -> Axes:
    """Return the axes of the bars; y is in inches from its upper edge."""
    width, height = figure.get_size_inches()
    place = (_LEFT / width, 1 - (top + tall) / height, (width - _LEFT - _RIGHT) / width, tall / height)
    axes = figure.add_axes(place)
    axes.set_ylim(tall, 0.0)
    return axes


def _finish(axes: Axes, longest_s: float, label: str) -> None:
    axes.set_yticks([])
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(axis="x", color="0.92", zorder=0)
    axes.set_axisbelow(True)
    styles.time_axis(axes, (0.0, longest_s), styles.time_unit(longest_s), label)


def _stacked(
    axes: Axes, parts: Sequence[tuple[str, float | None]], middle: float, label: str, longest_s: float | None = None
) -> None:
    """Draw dimensions one after another; the labels of narrow ones stand above, apart, with a line to their part."""
    total_s = sum(time or 0.0 for _, time in parts)
    longest_s = longest_s or total_s
    reached, above = 0.0, []
    for name, time in parts:
        if not time:
            continue
        axes.barh(middle, time, _BAR, reached, color=styles.COLORS[name], ec="white", lw=0.6, zorder=3, gid="dimension")
        share = _percent(time / total_s)
        lines = _lines(name, f"{styles.time_text(time)}, {share}", time / longest_s * _INCHES)
        if lines:
            axes.text(
                reached + time / 2, middle, lines, ha="center", va="center", fontsize=7.5, zorder=4,
                color=styles.text_color(name), parse_math=False, linespacing=1.1,
            )  # fmt: skip
        elif time >= _LEAST_LABELLED * total_s:
            above.append((reached + time / 2, f"{name} {share}"))
        reached += time
    if label:
        text = f"{label} {styles.time_text(total_s)}"
        axes.annotate(text, (0, middle), (-6, 0), xycoords=("axes fraction", "data"), textcoords="offset points",
                      ha="right", va="center", fontsize=8.5, fontweight="bold", parse_math=False)  # fmt: skip
    _labels_above(axes, above, middle - _BAR / 2, longest_s)


def _lines(name: str, rest: str, wide: float) -> str:
    """Return a label in one line or two where it fits into so many inches, else nothing."""
    if (len(name) + len(rest) + 1) * _LETTER < wide:
        return f"{name} {rest}"
    return f"{name}\n{rest}" if max(len(name), len(rest)) * _LETTER < wide else ""


def _labels_above(axes: Axes, labels: Sequence[tuple[float, str]], edge: float, longest_s: float) -> None:
    """Write labels above a bar, apart from each other, each with a line to its part."""
    if not labels:
        return
    per_inch = longest_s / _INCHES
    gap = (max(len(text) for _, text in labels) * 0.062 + 0.06) * per_inch
    places = _inside(spread([at for at, _ in labels], gap), gap, longest_s + (_RIGHT - 0.2) * per_inch)
    height = edge - 0.2
    for (at, text), place in zip(labels, places, strict=True):
        axes.plot([at, place], [edge, height + 0.08], color="0.5", lw=0.5, clip_on=False, zorder=2)
        axes.text(place, height, text, ha="center", va="center", fontsize=7, zorder=4, parse_math=False)


def _inside(places: Sequence[float], gap: float, high: float) -> list[float]:
    """Return places moved together so that labels of a width end before a limit, and where they can, begin after 0."""
    over = max(0.0, max(places) + gap / 2 - high)
    under = max(0.0, min(over - min(places) + gap / 2, high - max(places) + over - gap / 2))
    return [place - over + under for place in places]


def _evidence_rows(diagnosis: Diagnosis, total_s: float) -> list[_Row]:
    """Return for each dimension a heading, and its evidence by time."""
    rows = []
    for part in diagnosis.parts:
        if not part.time_s or part.time_s < _NOTHING * total_s:
            continue
        share = _percent(part.time_s / total_s)
        rows.append(
            _Row(
                part.dimension, f"{styles.time_text(part.time_s)}, {share}", part.dimension, ((part.time_s, 1.0),), True
            )
        )
        known = [one for one in part.evidence if one.time_s]
        names = Counter(one.what for one in known)
        worth = sorted(known, key=lambda one: -(one.time_s or 0.0))[:_MOST_EVIDENCE]
        rows.extend(
            _evidence_row(one, part.dimension, total_s, told=names[one.what] > 1)
            for one in worth
            if (one.time_s or 0.0) >= _LEAST_SHARE * total_s
        )
    return rows


def _evidence_row(one: Evidence, dimension: str, total_s: float, *, told: bool) -> _Row:
    """Return the row of a piece of evidence, with its detail where its name alone does not tell it from others."""
    time_s = one.time_s or 0.0
    calls = f", {one.count}x" if one.count else ""
    text = f"{styles.time_text(time_s)}, {_percent(time_s / total_s)}{calls}"
    label = printable(f"{one.what}: {one.detail}", 4 * _LONGEST) if told and one.detail else ""
    label = f"{label[: _LONGEST - 1]}…" if len(label) > _LONGEST else label
    return _Row(label or styles.shortened(one.what, _LONGEST), text, dimension, ((time_s, 0.6),))


def _change_rows(found: DiagnosisComparison) -> list[_Row]:
    """Return a row for each dimension, then those of the entries that changed most; each with two bars."""
    timed = [change for change in found.dimensions if change.before_s or change.after_s]
    rows = [_change_row(change, change.name, heading=True) for change in timed]
    styled = _entry_styles(found.after) | _entry_styles(found.before)
    rows.append(_Row("changed most (pale: before)", "", Dimension.OTHER, (), True))
    shown = [change for change in found.entries if change.change_s][:_MOST_ENTRIES]
    return rows + [_change_row(change, styled.get(change.name, Dimension.OTHER), heading=False) for change in shown]


def _change_row(change: Change, style: str, *, heading: bool) -> _Row:
    difference = f"{'+' if change.change_s > 0 else '-'}{styles.time_text(abs(change.change_s))}"
    relative = f", {_relative(change.change)}" if change.change is not None else ""
    status = f", {change.status}" if change.status != BOTH else ""
    bars = ((change.before_s or 0.0, 0.4), (change.after_s or 0.0, 1.0))
    label = styles.shortened(change.name, _LONGEST)
    return _Row(label, f"{difference}{relative}{status}" if change.change_s else "same", style, bars, heading)


def _relative(change: float) -> str:
    """Return a change in per cent, or from three times on as a factor."""
    return f"{100 * change:+.1f} %" if change < 2 else f"{1 + change:.3g}x"


def _entry_styles(diagnosis: Diagnosis) -> dict[str, str]:
    """Return the dimension of each entry of the wall time, by its name."""
    dimensions: dict[str, str] = {limit.entry.name: dimension_of(limit.limiter) for limit in diagnosis.limits}
    gaps = {entry.name: gap_dimension(entry.name) for entry in diagnosis.wall.entries}
    return dimensions | {name: dimension for name, dimension in gaps.items() if dimension is not None}


def _rows(axes: Axes, rows: Sequence[_Row], top: float) -> None:
    """Draw labelled rows below the stacked bars: one bar, or two half as high for before (pale) and after."""
    for place, row in enumerate(rows):
        middle = top + _ROW * (place + 0.5)
        tall = 0.72 * _ROW / max(1, len(row.bars))
        for index, (time, shade) in enumerate(row.bars):
            at = middle + tall * (index - (len(row.bars) - 1) / 2)
            axes.barh(at, time, tall, color=styles.COLORS[row.style], alpha=shade, zorder=3, gid="row")
        weight = "bold" if row.heading else "normal"
        axes.annotate(row.label, (0, middle), (-6, 0), xycoords=("axes fraction", "data"), textcoords="offset points",
                      ha="right", va="center", fontsize=7.5, fontweight=weight, parse_math=False)  # fmt: skip
        end = max((time for time, _ in row.bars), default=0.0)
        axes.annotate(row.text, (end, middle), (4, 0), textcoords="offset points", ha="left", va="center", fontsize=7,
                      fontweight=weight, annotation_clip=False, parse_math=False)  # fmt: skip


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %" if share >= 0.0005 else "<0.1 %"
