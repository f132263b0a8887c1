"""The plot of algorithms: an algorithm has one colour, and the legend says what dashes mean."""

from __future__ import annotations

from matplotlib.figure import Figure

import perfmodel as pm
from perfmodel.render.plots.algorithms import algorithms_plot


def _colors(figure: Figure, panel: int) -> dict[str, str]:
    return {str(line.get_gid()): str(line.get_color()) for line in figure.axes[panel].lines if line.get_gid()}


def test_an_algorithm_has_one_colour_on_all_machines() -> None:
    choices = [pm.choose("convolution", machine) for machine in ("h100", "l40s")]
    assert list(choices[0].curves) != list(choices[1].curves)  # ranked otherwise
    first, second = (_colors(algorithms_plot(choices), panel) for panel in (0, 1))
    assert {name: first[name] for name in choices[0].curves} == {name: second[name] for name in choices[0].curves}


def test_dashes_are_explained_where_there_are_any() -> None:
    for problem, dashed in (("convolution", True), ("scan", False)):
        axes = algorithms_plot([pm.choose(problem, "h100", **({"cols": 2**20} if problem == "scan" else {}))]).axes[0]
        legend = axes.get_legend()
        assert legend is not None
        assert ("does not apply" in [text.get_text() for text in legend.get_texts()]) is dashed


def test_the_key_of_dashes_and_the_curves_of_a_panel_have_colours_of_their_own() -> None:
    problems = ("sort", "topk", "convolution", "gradient_compression")
    figure = algorithms_plot([pm.choose(problem, "h100") for problem in problems])
    for axes in figure.axes:
        legend = axes.get_legend()
        assert legend is not None
        colors = [line.get_color() for line in legend.get_lines()]
        assert len(set(colors)) == len(colors)
