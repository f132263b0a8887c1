"""What convolutions and pools share: windows that step along an axis, and the gradients of a convolution."""

from __future__ import annotations

from typing import Any

from perfmodel.core.work import (
    Number,
    Tensor,
    anywhere,
    ceil,
    common_divisor,
    everywhere,
    floor,
    largest,
    maximum,
    minimum,
    plain,
    where,
)
from perfmodel.errors import UsageError
from perfmodel.operators.checks import check_groups, first_point

#: taps of a window in one direction up to which the rows that they meet are counted one tap after another
MOST_TAPS = 1024


def outputs(length: Number, taps: Number, step: Number, padding: Number, apart: Number = 1) -> Number:
    """Return how many windows fit an axis: floor((length + 2 padding - apart (taps - 1) - 1) / step) + 1.

    Parameters
    ----------
    length : elements of the axis.
    taps, step, padding, apart : elements of a window, its stride, zeros on each side, and the distance of its elements.
    """
    span = apart * (taps - 1.0) + 1.0
    return plain(floor((length + 2.0 * padding - span) / step) + 1.0)


def touched(length: Number, windows: Number, taps: Number, step: Number, padding: Number, apart: Number = 1) -> Number:
    """Return how many elements of an axis some tap of some window meets.

    Tap j of window i meets element step i + apart j - padding. With g = gcd(step, apart), tap j of window i and tap
    j - step / g of window i + apart / g meet the same one. These pairs form chains, so that as many elements are met as
    there are (i, j) inside the axis less the pairs.

    Parameters
    ----------
    windows : how many there are, as `outputs` counts them; the others as there.
    """
    last = windows - 1.0
    if everywhere((apart == 1) & (step <= taps)):  # the windows leave no gap
        return maximum(0.0, minimum(length, last * step + taps - padding))
    common = common_divisor(step, apart)
    further, back = apart / common, step / common
    met: Number = 0.0
    for tap in range(int(min(largest(taps), MOST_TAPS))):
        first = maximum(0.0, ceil((padding - apart * tap) / step))
        end = minimum(last, floor((length - 1.0 + padding - apart * tap) / step))
        pairs = where(tap >= back, maximum(0.0, minimum(end, last - further) - first + 1.0), 0.0)
        met = met + where(tap < taps, maximum(0.0, end - first + 1.0) - pairs, 0.0)
    return plain(where(taps > MOST_TAPS, minimum(length, windows * taps), met))


def check_convolution(op: Any, axes: tuple[tuple[str, str, Number, Number, Number, Number, Number], ...]) -> None:
    """Check the groups and the gradient of a convolution, and that its output is not empty.

    Parameters
    ----------
    op : the convolution.
    axes : name of the axis and of its taps, its length, its taps, their distance, the padding and the outputs.

    Raises
    ------
    UsageError
        Where groups do not divide channels and filters, one gradient is named of a forward pass, or a filter does not
        fit the padded axis.
    """
    if op.gradient != "both" and not op.backward:
        raise UsageError(f"gradient={op.gradient} needs backward=true.", place=op.op)
    for name, value in (("c", op.c), ("k", op.k)):
        remedy = "All groups have the same number of channels and filters."
        check_groups(op.op, remedy, **{name: value, "groups": op.groups})
    for name, of_taps, length, taps, apart, padding, out in axes:
        if anywhere(empty := out < 1):
            shown = first_point(empty, taps, apart, length, padding)
            raise UsageError(
                "the output is empty: a filter of {} taps at dilation {} does not fit {} with padding {} "
                "({names}).".format(*shown, names=f"{name}, {of_taps}"),
                place=op.op,
                remedy=f"dilation ({of_taps} - 1) + 1 is at most {name} + 2 padding.",
            )


def gradient_tensors(
    op: Any, image: tuple[Number, ...], filters: tuple[Number, ...], result: tuple[Number, ...]
) -> tuple[Tensor, ...]:
    """Return the tensors of a convolution's gradients; two kernels read dy.

    Parameters
    ----------
    op : the convolution, whose ``gradient`` is "both", "input" or "weight".
    image, filters, result : shapes of x, the weights and y.
    """
    dy = Tensor("dy", result, op.dtype, reads=2.0 if op.gradient == "both" else 1.0)
    of_input = (Tensor.input("weight", filters, op.dtype), Tensor.output("dx", image, op.dtype))
    of_weight = (Tensor.input("x", image, op.dtype), Tensor.output("dweight", filters, op.dtype))
    parts = {"input": of_input, "weight": of_weight, "both": (*of_input, *of_weight)}
    return (dy, *parts[op.gradient])
