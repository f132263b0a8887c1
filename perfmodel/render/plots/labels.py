"""Placing labels beside their points: away from data and lines, from each other, and from each other's leader lines."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg, RendererAgg
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties
from matplotlib.text import Annotation
from numpy.typing import ArrayLike, NDArray

from perfmodel.render.plots.figure import POINTS_PER_INCH
from perfmodel.render.plots.fonts import with_fallbacks

#: positions of a label around its point, those to try first in front: distance [pt] and direction [rad]
_DISTANCES = (6.0, 12.0, 17.0, 22.0, 28.0, 34.0, 42.0, 50.0, 60.0, 70.0, 82.0, 95.0)
_DIRECTIONS = np.radians([35, 145, 90, 0, 180, 325, 215, 270, 60, 120, 15, 165, 345, 195, 300, 240])
#: labels from this distance on get a leader line [pt]
_FAR = 12.0
#: a label without one seems to be that of any mark so near [pt]
_NEAR = 5.0
#: padding around a label [pt]; the width of text varies a little with the resolution
_PADDING = np.array([8.0, 2.0])
#: costs in pt^2 of covered data: of a point of distance, a point of a leader line within a label or something solid,
#: two leader lines that cross, and 1 pt^2 of two labels that overlap
_AWAY, _THROUGH_LABEL, _THROUGH_SOLID, _CROSSING, _OVERLAP = 2.0, 40.0, 8.0, 400.0, 40.0
#: marks have this weight; leader lines keep away from what has it or more
_SOLID = 2.0
#: most rounds in which each label looks for a better place
_ROUNDS = 10
#: places of all labels together that are looked at, but some for each; orders of placing labels, times the labels
_PLACES, _LEAST_PLACES, _TRIALS = 768, 16, 1200
Boxes = NDArray[np.float64]
#: lines from a first to a second point: [line, end, coordinate]
Lines = NDArray[np.float64]


@dataclass(frozen=True)
class _Places:
    """Where a label can stand.

    Attributes
    ----------
    offsets : of its centre from its point [pt].
    boxes : around it [pt].
    leaders : lines from the point to the boxes [pt].
    led : whether the leader line is drawn.
    costs : of what it covers, and of being away from the point [pt^2].
    """

    offsets: NDArray[np.float64]
    boxes: Boxes
    leaders: Lines
    led: NDArray[np.bool_]
    costs: NDArray[np.float64]

    def cheapest(self, count: int) -> _Places:
        """Return the places that cost least, the cheapest first."""
        kept = np.argsort(self.costs, kind="stable")[:count]
        return _Places(self.offsets[kept], self.boxes[kept], self.leaders[kept], self.led[kept], self.costs[kept])


class LabelPlacer:
    """Places labels so that they overlap data, lines and each other as little as possible.

    Positions and sizes are in points of the figure (1/72 inch). Call `block` and `mark` for the data before `label`.
    """

    def __init__(self, axes: Axes) -> None:
        self._axes = axes
        figure = axes.get_figure(root=True)
        assert isinstance(figure, Figure)
        self._renderer: RendererAgg = FigureCanvasAgg(figure).get_renderer()  # type: ignore[no-untyped-call]
        self._scale = POINTS_PER_INCH / figure.dpi
        frame = axes.get_window_extent(self._renderer)
        self._frame = np.array([frame.x0, frame.y0, frame.x1, frame.y1]) * self._scale
        self._boxes: Boxes = np.empty((0, 4))
        self._marks: Boxes = np.empty((0, 4))
        self._weights: NDArray[np.float64] = np.empty(0)

    def points_of(self, data: ArrayLike) -> NDArray[np.float64]:
        """Return data coordinates as points of the figure."""
        return np.asarray(self._axes.transData.transform(data)) * self._scale

    def data_of(self, points: ArrayLike) -> NDArray[np.float64]:
        """Return points of the figure as data coordinates."""
        return np.asarray(self._axes.transData.inverted().transform(np.asarray(points) / self._scale))

    def width_of(self, text: str, font_size: float) -> float:
        """Return the width of a text [pt]."""
        font = FontProperties(size=font_size)
        font.set_family(with_fallbacks(font.get_family()))
        width, _, _ = self._renderer.get_text_width_height_descent(text, font, False)  # type: ignore[no-untyped-call]
        return float(width) * self._scale

    def block(self, centres: NDArray[np.float64], half_size: float, weight: float = 1.0) -> None:
        """Keep labels away from squares around some positions [pt]; ``weight`` is the cost of covering them.

        Positions that round to the same point count once, since a sweep has thousands of them on one line. Leader lines
        keep away from squares with a weight of 2 or more, which texts and marks have.
        """
        centres = np.unique(np.round(centres), axis=0)
        if len(centres):
            self._boxes = np.vstack([self._boxes, np.hstack([centres - half_size, centres + half_size])])
            self._weights = np.append(self._weights, np.full(len(centres), weight))

    def mark(self, centres: NDArray[np.float64], half_size: float) -> None:
        """Keep labels away from marks at some positions [pt], and labels of others from looking like theirs."""
        before = len(self._boxes)
        self.block(centres, half_size, _SOLID)
        self._marks = np.vstack([self._marks, self._boxes[before:]])

    def block_line(self, data: ArrayLike, weight: float) -> None:
        """Keep labels away from the straight line between two points in data coordinates."""
        start, end = self.points_of(data)
        steps = max(2, int(np.hypot(*(end - start)) / 4))
        self.block(start + np.linspace(0, 1, steps)[:, None] * (end - start), 2.0, weight)

    def crowding(self, centres: NDArray[np.float64], half_size: float, around: float) -> float:
        """Return the weighted area that squares around some positions would cover [pt^2].

        Parameters
        ----------
        centres : the positions [pt].
        half_size : of the squares [pt].
        around : by which the squares reach further to keep away from marks, whose own labels need room [pt].
        """
        squares = np.hstack([centres - half_size, centres + half_size])
        return float(self._cost(squares).sum() + _overlap(_grown(squares, around), self._marks).sum())

    def label(self, named: Sequence[tuple[tuple[float, float], str]], **style: Any) -> None:
        """Write labels near points in data coordinates, with a thin leader line where one is not beside its point.

        All labels of the axes belong in one call, since each finds its place among the others.
        """
        artists = [self._written(anchor, text, **style) for anchor, text in named]
        count = max(_LEAST_PLACES, _PLACES // max(1, len(artists)))
        places = [self._places(artist).cheapest(count) for artist in artists]
        for artist, options, best in zip(artists, places, _settled(places), strict=True):
            artist.set_position(tuple(options.offsets[best]))
            if options.led[best]:
                start, end = options.leaders[best]
                self._axes.annotate(
                    "",
                    artist.xy,
                    tuple(end - start),
                    textcoords="offset points",
                    arrowprops={"arrowstyle": "-", "color": "0.55", "linewidth": 0.5, "shrinkA": 0, "shrinkB": 3},
                )

    def _written(self, anchor: tuple[float, float], text: str, **style: Any) -> Annotation:
        """Return a label in the middle of its point."""
        return self._axes.annotate(
            text, anchor, (0, 0), textcoords="offset points", ha="center", va="center", parse_math=False, **style
        )

    def _places(self, artist: Annotation) -> _Places:
        """Return where a label can stand."""
        extent = artist.get_window_extent(self._renderer)
        size = np.array([extent.width, extent.height]) * self._scale + _PADDING
        centre = self.points_of(artist.xy)
        offsets, distances = _offsets(size)
        boxes = np.hstack([centre + offsets - size / 2, centre + offsets + size / 2])
        nearest = np.clip(centre, boxes[:, :2], boxes[:, 2:])
        leaders = np.stack([np.broadcast_to(centre, nearest.shape), nearest], axis=1)
        led = distances >= _FAR
        crossed = _within(leaders, _apart(self._boxes[self._weights >= _SOLID], centre)).sum(axis=1)
        beside = _overlap(_grown(boxes, _NEAR), _apart(self._marks, centre)).sum(axis=1)
        costs = self._cost(boxes) + _AWAY * distances + np.where(led, _THROUGH_SOLID * crossed, beside)
        return _Places(offsets, boxes, leaders, led, costs)

    def _cost(self, boxes: Boxes) -> NDArray[np.float64]:
        """Return the weighted area that each box covers; area outside the axes counts 20-fold."""
        outside = 20.0 * (_area(boxes) - _overlap(boxes, self._frame[None])[:, 0])
        return outside + _overlap(boxes, self._boxes) @ self._weights


def _settled(places: Sequence[_Places]) -> list[int]:
    """Return the place of each label, so that together they cost least of what several orders of placing them give."""
    if not places:
        return []
    count = len(places)
    costs, clashes = np.stack([own.costs for own in places]), _clashes(places)
    along = sorted(range(count), key=lambda label: float(places[label].leaders[0, 0, 0]))
    shuffled = np.random.default_rng(0).permutation
    orders = [range(count), along, along[::-1], *(shuffled(count) for _ in range(min(100, _TRIALS // count)))]
    _, chosen = min((_placed(costs, clashes, order) for order in orders), key=lambda result: result[0])
    return [chosen[label] % costs.shape[1] for label in range(count)]


def _clashes(places: Sequence[_Places]) -> NDArray[np.float64]:
    """Return what each place of each label costs beside each place of all labels [pt^2]: [label, place, any place]."""
    boxes, leaders, led = (
        np.concatenate([getattr(own, name) for own in places]) for name in ("boxes", "leaders", "led")
    )
    through = _THROUGH_LABEL * _within(leaders, boxes) * led[:, None]
    crossing = _CROSSING * (_cross(leaders, leaders) & led[:, None] & led)
    clashes = np.asarray(_OVERLAP * _overlap(boxes, boxes) + through + through.T + crossing)
    by_label = clashes.reshape(len(places), -1, len(boxes))
    for label, own in enumerate(by_label):
        own[:, label * len(own) : (label + 1) * len(own)] = 0.0  # a label has one place, not two beside each other
    return by_label


def _placed(
    costs: NDArray[np.float64], clashes: NDArray[np.float64], order: Iterable[int]
) -> tuple[float, dict[int, int]]:
    """Return the cost and the places of labels: the best beside those before it, then beside all others, in rounds."""
    chosen: dict[int, int] = {}
    total = 0.0
    for _ in range(_ROUNDS):
        before, total = dict(chosen), 0.0
        for label in order:
            here = costs[label] + clashes[label][:, list(chosen.values())].sum(axis=1)
            best = int(np.argmin(here))
            chosen[label] = label * len(here) + best
            total += float(here[best])
        if chosen == before:
            break
    return total, chosen


def _offsets(size: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the possible offsets of a label's centre from its point, and the distance of its edge for each [pt]."""
    unit = np.column_stack([np.cos(_DIRECTIONS), np.sin(_DIRECTIONS)])
    offsets = np.vstack([unit * distance + np.sign(np.round(unit, 6)) * size / 2 for distance in _DISTANCES])
    return offsets, np.repeat(_DISTANCES, len(_DIRECTIONS))


def _apart(boxes: Boxes, point: NDArray[np.float64]) -> Boxes:
    """Return the boxes that a point is not in."""
    outside: NDArray[np.bool_] = np.any((boxes[:, :2] > point) | (boxes[:, 2:] < point), axis=1)
    return boxes[outside]


def _grown(boxes: Boxes, by: float) -> Boxes:
    return np.asarray(boxes + np.array([-by, -by, by, by]))


def _area(boxes: Boxes) -> NDArray[np.float64]:
    return np.asarray((boxes[:, 2] - boxes[:, 0]) * (boxes[:, 3] - boxes[:, 1]))


def _overlap(boxes: Boxes, others: Boxes) -> NDArray[np.float64]:
    """Return the overlapping area of each box with each of the others [pt^2]."""
    x0, y0, x1, y1 = (boxes[:, None, side] for side in range(4))
    u0, v0, u1, v1 = (others[None, :, side] for side in range(4))
    width = np.maximum(np.minimum(x1, u1) - np.maximum(x0, u0), 0.0)
    height = np.maximum(np.minimum(y1, v1) - np.maximum(y0, v0), 0.0)
    return np.asarray(width * height)


def _within(lines: Lines, boxes: Boxes) -> NDArray[np.float64]:
    """Return the length of each line within each box [pt] (Liang and Barsky 1984: where it enters, and leaves)."""
    start, step = lines[:, None, 0], lines[:, None, 1] - lines[:, None, 0]
    step = np.where(np.abs(step) < 1e-9, 1e-9, step)
    first, last = (boxes[None, :, :2] - start) / step, (boxes[None, :, 2:] - start) / step
    enters = np.minimum(first, last).max(axis=2).clip(min=0.0)
    leaves = np.maximum(first, last).min(axis=2).clip(max=1.0)
    return np.asarray(np.maximum(leaves - enters, 0.0) * np.hypot(step[..., 0], step[..., 1]))


def _cross(lines: Lines, others: Lines) -> NDArray[np.bool_]:
    """Return which lines cross which others: the ends of each lie on both sides of the other."""
    a, b = lines[:, None, 0], lines[:, None, 1]
    c, d = others[None, :, 0], others[None, :, 1]
    return np.asarray((_side(a, b, c) * _side(a, b, d) < 0) & (_side(c, d, a) * _side(c, d, b) < 0))


def _side(a: NDArray[np.float64], b: NDArray[np.float64], point: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return above 0 for a point to the left of the line from a to b, below 0 for one to its right."""
    ahead, aside = b - a, point - a
    return np.asarray(ahead[..., 0] * aside[..., 1] - ahead[..., 1] * aside[..., 0])
