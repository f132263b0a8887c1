"""Pages and plots of results."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from perfmodel.api.arguments import check_list
from perfmodel.api.machines import Machine, find_machine, known_machines
from perfmodel.errors import UsageError, suggesting

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from perfmodel.render.plots.roofline.points import Point


@suggesting
def html_report(*results: Any, title: str = "") -> str:
    """Return one self-contained HTML page of one result, or of two side by side: before and after.

    Parameters
    ----------
    results : what perfmodel's functions return (a diagnosis, predictions, a ranking, a training step, ...), or reports.
    title : of the page.

    Raises
    ------
    UsageError
        When there is no result.
    TypeError
        For what is no result of perfmodel.
    """
    if not results:
        raise UsageError(
            "there is no result.", place="html_report", remedy="Give one or two, as pm.html_report(diagnosis)."
        )
    from perfmodel.render.html.inputs import html_report as page_of

    return page_of(*results, title=title, find=known_machines)


@suggesting
def roofline_plot(
    hardware: Machine, points: Iterable[Point], *, dtype: str | None = None, title: str | None = None
) -> Figure:
    """Return a matplotlib figure of the roofline of a machine; see `perfmodel.render.plots.roofline.roofline_plot`.

    Parameters
    ----------
    hardware : the machine, or its name.
    points : predictions (a sweep gives many points), or rows of `analyze` or `bench` records.
    dtype : draw only points and ceilings of this dtype; by default all.
    title : heading above the machine's name.

    Raises
    ------
    UsageError
        When a point is neither a prediction nor a row of a record, or the dtype is unknown.
    """
    from perfmodel.render.plots.roofline import roofline_plot as plot_on

    remedy = "Write [pm.predict(op, hardware)], or the rows of a record."
    check_list(points, "points", place="points", remedy=remedy)
    return plot_on(find_machine(hardware), points, dtype=dtype, title=title)
