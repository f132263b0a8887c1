"""Plots, the only importers of matplotlib. `plot` draws any result that has a plot.

A module or package of this folder registers the plots of the package of perfmodel with the same name:

    @plot.register
    def accuracy_plot(accuracy: Accuracy) -> Figure: ...
"""

from __future__ import annotations

import functools
import importlib
import importlib.util
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@functools.singledispatch
def plot(result: Any, **options: Any) -> Figure:
    """Return a matplotlib figure of a result, or of a list of predictions.

    Parameters
    ----------
    result : an accuracy, a comparison of records or diagnoses, a diagnosis, a projection, a ranking, a scenario's
        result, or a prediction.
    options : the options of the plot for this kind of result.

    Raises
    ------
    TypeError
        When there is no plot of such a result.
    """
    kind = type(result[0] if isinstance(result, (list, tuple)) and result else result)
    for base in kind.__mro__:
        package, _, rest = base.__module__.partition(".")
        module = f"{__name__}.{rest.partition('.')[0]}"
        if package != "perfmodel" or importlib.util.find_spec(module) is None:
            continue
        importlib.import_module(module)
        function = plot.dispatch(kind)
        if function is not _unregistered:
            figure: Figure = function(result, **options)
            return figure
    raise TypeError(f"there is no plot of {kind.__name__}.")


_unregistered = plot.dispatch(object)
