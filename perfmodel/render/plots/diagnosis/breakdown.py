"""Plot of the breakdown of a run: its dimensions as one bar, the evidence for each below it, and the run over time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from perfmodel import storage
from perfmodel.core.units import format_fraction
from perfmodel.core.vocabulary import Dimension, EventKind
from perfmodel.diagnosis.against import BOTH, STEP, Change, DiagnosisComparison
from perfmodel.diagnosis.decompose import dimension_of
from perfmodel.diagnosis.result import Diagnosis, Evidence, Part
from perfmodel.diagnosis.wall import gap_dimension
from perfmodel.errors import UsageError
from perfmodel.render.plots.diagnosis import styles
from perfmodel.render.plots.diagnosis.timeline import WIDTH, check_diagnosis, draw_block, timeline_block
from perfmodel.render.plots.figure import new_figure, printable, spread

#: margins left and right of the bars; heights of a row, a bar, the labels above it, the time axis, the title [inches]
_LEFT, _RIGHT, _ROW, _BAR, _ABOVE, _BELOW, _TITLE = 3.9, 1.75, 0.185, 0.34, 0.32, 0.5, 0.34
#: most pieces of evidence for each dimension, and most entries of a comparison; the others share a row, "rest"
_MOST_EVIDENCE, _MOST_ENTRIES = 4, 14
#: smallest share of the total time with a row of its own
_LEAST_SHARE = 0.002
#: a smaller share of the total time is a rounding error
_NOTHING = 1e-6
#: smallest share of a stacked bar with a label at the bar
_LEAST_LABELLED = 0.005
#: most characters of a label left of the bars, and width of a character in a bar's label of 7.5 pt [inches]
_LONGEST, _LETTER = 58, 0.067
#: opacity of the bars of evidence, and of the rest and of the run before
_EVIDENCE_OPACITY, _PALE = 0.6, 0.4
_REST = "rest"
#: width of the axes [inches]
_INCHES = WIDTH - _LEFT - _RIGHT


@dataclass(frozen=True)
class _Row:
    """A labelled row of bars; ``bars`` are pairs of a time [s] and an opacity, which is lower for the run before."""

    label: str
    text: str
    style: str
    bars: tuple[tuple[float, float], ...]
    heading: bool = False


def breakdown_plot(diagnosis: Diagnosis, *, with_timeline: bool = True) -> Figure:
    """Return the dimensions of a diagnosis as one stacked bar, with the largest evidence for each, and the time line.

    All bars share one axis of time. A row "rest" has the time of a dimension that the rows above it do not cover. If
    the profile has a time line, the panels of `timeline_plot` follow, unless ``with_timeline`` is False.

    Raises
    ------
    UsageError
        When the total time of the diagnosis is not positive, and for what is no diagnosis.
    """
    check_diagnosis(diagnosis)
    total_s = diagnosis.total_s
    if not total_s > 0:
        raise UsageError("there is no time to draw.", place=diagnosis.profile.source)
    communication = _communication(diagnosis)
    rows = _evidence_rows(diagnosis, total_s, communication)
    block = timeline_block(diagnosis) if with_timeline and diagnosis.decomposition is not None else None
    own = _TITLE + _ABOVE + _BAR + 0.12 + _ROW * len(rows) + _BELOW
    figure = new_figure(WIDTH, own + (block.height_inches + 0.1 if block else 0.1))
    whole = "wall time" if diagnosis.decomposition else "time of the rows listed"
    title = f"{whole} {styles.time_text(total_s)}, {printable(storage.name_of(diagnosis.profile.source), 80)}"
    _title(figure, title.removesuffix(", "))
    axes = _axes(figure, _TITLE, _ABOVE + _BAR + 0.12 + _ROW * len(rows))
    bar_at = _ABOVE + _BAR / 2
    shown = [(part.dimension, part.time_s) for part in diagnosis.parts if part.time_s]
    colored: dict[str, str] = {part.dimension: _style_of(part, communication) for part in diagnosis.parts}
    _stacked(axes, shown, bar_at, "", colored=colored)
    _rows(axes, rows, _ABOVE + _BAR + 0.12)
    _finish(axes, total_s, "time")
    if block is not None:
        draw_block(figure, block, own)
    return figure


def against_plot(comparison: DiagnosisComparison) -> Figure:
    """Return two runs on one axis of time: the dimensions before and after, then the entries with the largest changes.

    Raises
    ------
    UsageError
        When the total time of neither run is positive.
    """
    longest = max(comparison.before_s, comparison.after_s)
    if not longest > 0:
        raise UsageError("there is no time to draw.", place=comparison.before.profile.source)
    rows = _change_rows(comparison)
    bars = 2 * (_ABOVE + _BAR)
    figure = new_figure(WIDTH, _TITLE + bars + 0.12 + _ROW * len(rows) + _BELOW + 0.1)
    _title(figure, f"before and after: {comparison.headline}")
    axes = _axes(figure, _TITLE, bars + 0.12 + _ROW * len(rows))
    for place, label in enumerate(("before", "after")):
        times = [(change.name, (change.before_s, change.after_s)[place]) for change in comparison.dimensions]
        shown = [(name, time) for name, time in times if time]
        _stacked(axes, shown, place * (_ABOVE + _BAR) + _ABOVE + _BAR / 2, label, longest)
    _rows(axes, rows, bars + 0.12)
    _finish(axes, longest, "time of one step" if comparison.per == STEP else "time")
    return figure


def _title(figure: Figure, text: str) -> None:
    height = figure.get_size_inches()[1]
    figure.text(0.012, 1 - 0.2 / height, text, ha="left", va="center", fontsize=10, parse_math=False)


def _axes(figure: Figure, top: float, tall: float) -> Axes:
    """Return the axes of the bars; y is the distance from the upper edge [inches]."""
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
    axes: Axes,
    parts: Sequence[tuple[str, float | None]],
    middle: float,
    label: str,
    longest_s: float | None = None,
    *,
    colored: Mapping[str, str] = MappingProxyType({}),
) -> None:
    """Draw a stacked bar of dimensions; narrow segments have their label above the bar, with a line to it.

    ``colored`` is the style of a dimension that has not its own.
    """
    total_s = sum(time or 0.0 for _, time in parts)
    longest_s = longest_s or total_s
    reached, above = 0.0, []
    for name, time in parts:
        if not time:
            continue
        style = colored.get(name, name)
        color = styles.COLORS[style]
        axes.barh(middle, time, _BAR, reached, color=color, ec="white", lw=0.6, zorder=3, gid="dimension")
        share = format_fraction(time / total_s)
        lines = _lines(name, f"{styles.time_text(time)}, {share}", time / longest_s * _INCHES)
        if lines:
            axes.text(
                reached + time / 2, middle, lines, ha="center", va="center", fontsize=7.5, zorder=4,
                color=styles.text_color(style), parse_math=False, linespacing=1.1,
            )  # fmt: skip
        elif time >= _LEAST_LABELLED * total_s:
            above.append((reached + time / 2, f"{name} {share}"))
        reached += time
    if label:
        text = f"{label} {styles.time_text(total_s)}"
        axes.annotate(text, (0, middle), (-6, 0), xycoords=("axes fraction", "data"), textcoords="offset points",
                      ha="right", va="center", fontsize=8.5, fontweight="bold", parse_math=False)  # fmt: skip
    _labels_above(axes, above, middle - _BAR / 2, longest_s)


def _lines(name: str, amount: str, width: float) -> str:
    """Return a label in one line or two if it fits into a width [inches], else ""."""
    if (len(name) + len(amount) + 1) * _LETTER < width:
        return f"{name} {amount}"
    return f"{name}\n{amount}" if max(len(name), len(amount)) * _LETTER < width else ""


def _labels_above(axes: Axes, labels: Sequence[tuple[float, str]], edge: float, longest_s: float) -> None:
    """Write labels above a bar without overlap, each with a line to its segment."""
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
    """Return positions shifted so that labels of width ``gap`` end before a limit and, if possible, start after 0."""
    over = max(0.0, max(places) + gap / 2 - high)
    under = max(0.0, min(over - min(places) + gap / 2, high - max(places) + over - gap / 2))
    return [place - over + under for place in places]


def _communication(diagnosis: Diagnosis) -> frozenset[str]:
    """Return the names of the entries that are communication, which the lanes of the time line colour as such."""
    return frozenset(e.name for e in diagnosis.profile.entries if e.category == EventKind.COMMUNICATION)


def _style_of(part: Part, communication: Collection[str]) -> str:
    """Return the style of a dimension: its own, but of transfer that of what takes most of it, messages or copies."""
    messages_s = sum(one.time_s or 0.0 for one in part.evidence if one.what in communication)
    mostly = part.dimension == Dimension.TRANSFER and messages_s > 0.5 * (part.time_s or 0.0)
    return styles.COMMUNICATION if mostly else part.dimension


def _evidence_rows(diagnosis: Diagnosis, total_s: float, communication: Collection[str]) -> list[_Row]:
    """Return a heading for each dimension, its largest evidence by time, and the rest of its time.

    ``communication`` has the names of the evidence that is drawn as such.
    """
    rows = []
    for part in diagnosis.parts:
        if not part.time_s or part.time_s < _NOTHING * total_s:
            continue
        style = _style_of(part, communication)
        text = f"{styles.time_text(part.time_s)}, {format_fraction(part.time_s / total_s)}"
        rows.append(_Row(part.dimension, text, style, ((part.time_s, 1.0),), True))
        known = [one for one in part.evidence if one.time_s]
        names = Counter(one.what for one in known)
        largest = sorted(known, key=lambda one: -(one.time_s or 0.0))[:_MOST_EVIDENCE]
        shown = [one for one in largest if (one.time_s or 0.0) >= _LEAST_SHARE * total_s]
        for one in shown:
            message = part.dimension == Dimension.TRANSFER and one.what in communication
            own = styles.COMMUNICATION if message else part.dimension
            rows.append(_evidence_row(one, own, total_s, with_detail=names[one.what] > 1))
        rest_s = part.time_s - sum(one.time_s or 0.0 for one in shown)
        if shown and rest_s >= _LEAST_SHARE * total_s:
            text = f"{styles.time_text(rest_s)}, {format_fraction(rest_s / total_s)}"
            rows.append(_Row(_REST, text, style, ((rest_s, _PALE),)))
    return rows


def _evidence_row(one: Evidence, style: str, total_s: float, *, with_detail: bool) -> _Row:
    """Return the row of a piece of evidence; ``with_detail`` if other evidence has the same name."""
    time_s = one.time_s or 0.0
    calls = f", {one.count}x" if one.count else ""
    text = f"{styles.time_text(time_s)}, {format_fraction(time_s / total_s)}{calls}"
    label = printable(f"{one.what}: {one.detail}", 4 * _LONGEST) if with_detail and one.detail else ""
    label = f"{label[: _LONGEST - 1]}…" if len(label) > _LONGEST else label
    return _Row(label or styles.shortened(one.what, _LONGEST), text, style, ((time_s, _EVIDENCE_OPACITY),))


def _change_rows(comparison: DiagnosisComparison) -> list[_Row]:
    """Return a row for each dimension, for each of the largest changes of entries, and for the rest of the entries."""
    timed = [change for change in comparison.dimensions if change.before_s or change.after_s]
    rows = [_change_row(change, change.name, heading=True) for change in timed]
    styled = _entry_styles(comparison.after) | _entry_styles(comparison.before)
    rows.append(_Row("largest changes (pale: before)", "", Dimension.OTHER, (), True))
    changed = [change for change in comparison.entries if change.change_s]
    shown, others = changed[:_MOST_ENTRIES], changed[_MOST_ENTRIES:]
    rows += [_change_row(change, styled.get(change.name, Dimension.OTHER), heading=False) for change in shown]
    return [*rows, _rest_row(others)] if others else rows


def _rest_row(changes: Sequence[Change]) -> _Row:
    """Return one row for the sum of several changes."""
    before_s, after_s = (
        sum(time or 0.0 for time in times)
        for times in zip(*((change.before_s, change.after_s) for change in changes), strict=True)
    )
    label = f"{_REST}: {len(changes)} {'entries' if len(changes) > 1 else 'entry'}"
    bars = ((before_s, _PALE), (after_s, 1.0))
    return _Row(label, _difference(after_s - before_s), Dimension.OTHER, bars)


def _change_row(change: Change, style: str, *, heading: bool) -> _Row:
    difference = _difference(change.change_s)
    relative = f", {_relative(change.change)}" if change.change is not None else ""
    status = f", {change.status}" if change.status != BOTH else ""
    bars = ((change.before_s or 0.0, _PALE), (change.after_s or 0.0, 1.0))
    label = styles.shortened(change.name, _LONGEST)
    return _Row(label, f"{difference}{relative}{status}" if change.change_s else "same", style, bars, heading)


def _difference(change_s: float) -> str:
    return f"{'+' if change_s > 0 else '-'}{styles.time_text(abs(change_s))}"


def _relative(change: float) -> str:
    """Return a change in per cent, or as a factor from 3 on."""
    return f"{100 * change:+.1f} %" if change < 2 else f"{1 + change:.3g}x"


def _entry_styles(diagnosis: Diagnosis) -> dict[str, str]:
    """Return the dimension of each entry of the wall time, by its name."""
    dimensions: dict[str, str] = {limit.entry.name: dimension_of(limit.limiter) for limit in diagnosis.limits}
    gaps = {entry.name: gap_dimension(entry.name) for entry in diagnosis.wall.entries}
    return dimensions | {name: dimension for name, dimension in gaps.items() if dimension is not None}


def _rows(axes: Axes, rows: Sequence[_Row], top: float) -> None:
    """Draw labelled rows below the stacked bars: one bar, or two thinner ones for before (pale) and after."""
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
