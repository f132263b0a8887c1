"""Shared style of diagnosis plots: colours of dimensions and idle reasons, short names, time axes."""

from __future__ import annotations

from matplotlib.axes import Axes
from matplotlib.colors import to_rgb
from matplotlib.ticker import FuncFormatter, MaxNLocator

from perfmodel.core.kernel_name import function_of
from perfmodel.core.report import Column
from perfmodel.core.vocabulary import Dimension
from perfmodel.diagnosis.gaps import IdleReason
from perfmodel.render.plots.figure import printable

#: further styles of time lines: a part of transfer, and the activity of CPU threads
COMMUNICATION = "communication"
OPERATOR, OTHER_CALL = "operator", "other API call"
#: Okabe and Ito's colours, which are distinct with any colour vision, Tol's indigo, and greys
COLORS: dict[str, str] = {
    Dimension.COMPUTE: "#0072B2",
    Dimension.MEMORY: "#D55E00",
    Dimension.OTHER: "#56B4E9",
    Dimension.LAUNCH: "#009E73",
    Dimension.TRANSFER: "#E69F00",
    COMMUNICATION: "#F0E442",
    Dimension.SYNC: "#CC79A7",
    Dimension.IDLE: "0.72",
    IdleReason.INPUT: "#332288",
    IdleReason.HOST_WORK: "0.5",
    IdleReason.DELAYED: "0.68",
    IdleReason.UNTRACED: "0.84",
    OPERATOR: "0.91",
    OTHER_CALL: "0.35",
}
_TIME = Column("time_s", unit="s", digits=3)
_SECONDS = ((1.0, "s"), (1e-3, "ms"), (1e-6, "us"))


def text_color(style: str) -> str:
    """Return black or white, whichever has more contrast with a style's colour (luminance of ITU-R BT.709)."""
    red, green, blue = to_rgb(COLORS[style])
    return "white" if 0.2126 * red + 0.7152 * green + 0.0722 * blue < 0.45 else "black"


def shortened(name: str, longest: int) -> str:
    """Return a name for a figure; for a C++ kernel the function and its functor, without namespace and arguments.

    >>> shortened("void at::native::vectorized_elementwise_kernel<4, at::native::AddFunctor<float>, x>(int, y)", 60)
    'vectorized_elementwise_kernel<AddFunctor>'
    """
    return printable(function_of(name), longest)


def time_text(time_s: float) -> str:
    """Return a time as text with three digits; as in tables, less than a nanosecond is 0.

    >>> time_text(4.412e-4), time_text(1e-13)
    ('441 us', '0 s')
    """
    return _TIME.text(time_s)


def time_unit(span_s: float) -> tuple[float, str]:
    """Return the unit for a span: its length in seconds and its symbol.

    >>> time_unit(0.02)
    (0.001, 'ms')
    """
    return next(((scale, unit) for scale, unit in _SECONDS if span_s >= scale), _SECONDS[-1])


def time_axis(
    axes: Axes, window: tuple[float, float], unit: tuple[float, str], label: str, *, origin_s: float = 0.0
) -> None:
    """Set the x axis to a window of time [s], labelled in a unit of `time_unit` from ``origin_s`` [s]."""
    (low_s, high_s), (scale, name) = window, unit
    axes.set_xlim(low_s, high_s)
    # Ticks are at round values of the displayed unit, counted from the origin.
    locator = MaxNLocator(8, steps=[1, 2, 2.5, 5, 10])
    ticks = locator.tick_values((low_s - origin_s) / scale, (high_s - origin_s) / scale)
    axes.set_xticks([tick * scale + origin_s for tick in ticks if low_s <= tick * scale + origin_s <= high_s])
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{(value - origin_s) / scale:.7g}"))
    axes.set_xlabel(f"{label} [{name}]", fontsize=8)
    axes.tick_params(axis="x", labelsize=7.5)
