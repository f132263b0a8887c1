"""Maps calls of convolutions and their gradients to operators of the model.

Each function takes a `Call` and returns the operator, or raises `NotModelledError` with the reason. The order of the
arguments is that of PyTorch's native_functions.yaml.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from perfmodel.formats.torch_trace.call import Call, NotModelledError, Shape
from perfmodel.formats.torch_trace.operators.matrix import math_dtype
from perfmodel.operators import Operator
from perfmodel.operators.conv2d import Conv2d
from perfmodel.operators.conv3d import Conv3d

#: largest stride that is tried where a trace has only the sizes of a convolution: vision transformers cut images into
#: patches of up to 32 by 32
_LARGEST_STRIDE = 32


#: a value of each direction
Sizes = tuple[int, ...]


def _sizes(x: Shape, weight: Shape) -> dict[str, Any]:
    """Return the sizes of a convolution of images [n, c, h, w] with a weight [k, c / groups, r, s]."""
    return dict(zip("nchwkrs", (*x.dims, weight.dims[0], *weight.dims[2:]), strict=True))


def _convolution(
    call: Call, stride: int, padding: int, dilation: int, groups: int | None, *, first: int = 0, gradient: str = ""
) -> Operator:
    """Return a convolution, or a ``gradient`` of it.

    The numbers are positions of arguments, with input and weight at ``first`` and after it. A signal is an image of one
    row, a film what `_folded` makes of it. Where directions have different padding, what one has beyond the other
    counts as part of the image; where strides or dilations differ, it is a film of one picture.
    """
    x, weight = (call.tensor(position) for position in (first, first + 1))
    if not call.has_values and len(call.result) == 4:
        return _from_sizes(call, _image(x), _image(weight), call.result)
    count = len(x.dims) - 2
    if not 1 <= count <= 3 or len(weight.dims) < 3:
        raise NotModelledError(f"its input has the shape {x.text()}, its filters {weight.text()}")
    steps, paddings, gaps = (
        _directions(call, name, position, count)
        for name, position in (("stride", stride), ("padding", padding), ("dilation", dilation))
    )
    of_groups = x.dims[1] if groups is None else _one(call, "groups", groups)
    given: dict[str, Any] = {"groups": of_groups, "backward": bool(gradient), "gradient": gradient or "both"}
    if count == 3:
        folded = _folded(x, weight, steps, paddings, gaps, of_groups)
        if folded is None:
            return _film(call, x.dims, weight, (steps, paddings, gaps), given)
        x, weight, steps, paddings, gaps = folded
    elif count == 1:  # of the one row nothing is told
        paddings = (0, *paddings)
    x, weight = _image(x), _image(weight)
    if len(set(steps)) > 1 or len(set(gaps)) > 1:
        return _film(call, x.dims, weight, (steps, paddings, gaps), given)
    padded = [size + 2 * (own - min(paddings)) for size, own in zip(x.dims[2:], paddings, strict=True)]
    return Conv2d(
        **_sizes(replace(x, dims=(*x.dims[:2], *padded)), weight),
        **given,
        stride=steps[0],
        padding=min(paddings),
        dilation=gaps[0],
        layout="nhwc" if x.channels_last else "nchw",
        dtype=math_dtype(call, x),
    )


def _film(
    call: Call, dims: Sizes, weight: Shape, windows: tuple[Sizes, Sizes, Sizes], given: Mapping[str, Any]
) -> Operator:
    """Return a convolution in three directions; an image is one picture.

    Parameters
    ----------
    call : whose kernels tell the dtype of the products.
    dims, weight : sizes of the film, and the filters.
    windows : strides, padding and dilations by direction.
    given : the other dimensions of the operator.
    """
    films, channels, *sizes = dims
    filters, _, *taps = weight.dims
    if len(taps) != len(sizes):
        raise NotModelledError("its input and its filters have different dimensions")
    steps, paddings, gaps = windows
    lists = {"": sizes, "taps": taps, "stride_": steps, "padding_": paddings, "dilation_": gaps}
    picture = {"": 1, "taps": 1, "stride_": 1, "padding_": 0, "dilation_": 1}
    found: dict[str, Any] = {}
    for name, values in lists.items():
        keys = "trs" if name == "taps" else [f"{name}{axis}" for axis in "dhw"]
        whole = (*[picture[name]] * (3 - len(values)), *values)
        found |= dict(zip(keys, whole, strict=True))
    return Conv3d(n=films, c=channels, k=filters, **found, **given, dtype=math_dtype(call, weight))


def _transposed(call: Call, options: int, *, gradient: str = "") -> Operator:
    """Return a transposed convolution: the gradient, by its input, of the convolution from its result to its input.

    Its own gradient by the input is that convolution; the one by the weight has the same products and tensors.

    Parameters
    ----------
    call : with input and weight [c, k / groups, r, s], after grad_output in a gradient.
    options : place of stride, padding, dilation, transposed, output_padding and groups.
    gradient : "input", "weight", "both", or "" for the transposed convolution itself.
    """
    first = 1 if gradient else 0
    x, weight = (call.tensor(position) for position in (first, first + 1))
    count = len(x.dims) - 2
    if not 1 <= count <= 3 or len(weight.dims) != len(x.dims):
        raise NotModelledError("its input and its filters have different dimensions")
    steps, paddings, gaps, more = (
        _directions(call, name, options + place, count)
        for name, place in (("stride", 0), ("padding", 1), ("dilation", 2), ("output_padding", 4))
    )
    groups = _one(call, "groups", options + 5)
    alike = len(set(steps)) == 1 and len(set(gaps)) == 1
    if count == 1:  # across a signal of one row nothing is told
        paddings, more = (0, *paddings), (0, *more)
    if count < 3:
        x, weight = _image(x), _image(weight)
    if alike and count < 3:  # what one direction has beyond the other counts as part of the image
        paddings = (min(paddings),) * 2
    steps, gaps = ((*values, values[0]) if count == 1 else values for values in (steps, gaps))
    sizes = [
        (size - 1) * step - 2 * padding + gap * (taps - 1) + 1 + end
        for size, step, padding, gap, taps, end in zip(
            x.dims[2:], steps, paddings, gaps, weight.dims[2:], more, strict=True
        )
    ]
    leads_back = gradient == "input"
    of = "both" if leads_back else gradient or "input"
    given: dict[str, Any] = {"groups": groups, "backward": not leads_back, "gradient": of}
    dims = (x.dims[0], weight.dims[1] * groups, *sizes)
    if not alike or count == 3:
        return _film(call, dims, weight, (steps, paddings, gaps), given)
    return Conv2d(
        **_sizes(replace(x, dims=dims), weight),
        **given,
        stride=steps[0],
        padding=paddings[0],
        dilation=gaps[0],
        layout="nhwc" if x.channels_last else "nchw",
        dtype=math_dtype(call, x),
    )


def _image(tensor: Shape) -> Shape:
    """Return images or filters as they are, signals and theirs as images and filters of one row."""
    if len(tensor.dims) == 3:
        return replace(tensor, dims=(*tensor.dims[:2], 1, tensor.dims[2]))
    if len(tensor.dims) != 4:
        raise NotModelledError(f"it is a convolution in {len(tensor.dims) - 2} dimensions")
    return tensor


def _folded(
    x: Shape, weight: Shape, steps: Sizes, paddings: Sizes, gaps: Sizes, groups: int
) -> tuple[Shape, Shape, Sizes, Sizes, Sizes] | None:
    """Return a convolution over time, height and width as one of images with the same FLOP and bytes, if it is one.

    It is one of each picture by itself where a filter spans one of them; one over time, with the pixels of a picture in
    a row, where a filter spans one pixel; and one of single pixels where each filter has a block of its own, as where a
    vision transformer cuts a film into patches. Where a filter spans both pictures and pixels that another filter spans
    too, it is none.
    """
    (n, c, *sizes), (k, per_group, *taps) = x.dims, weight.dims
    if len(taps) != 3 or len(sizes) != 3:
        raise NotModelledError("its input and its filters have different dimensions")
    outputs = [
        (size + 2 * padding - gap * (tap - 1) - 1) // step + 1
        for size, padding, gap, tap, step in zip(sizes, paddings, gaps, taps, steps, strict=True)
    ]
    if taps[0] == 1 and paddings[0] == 0:
        x, weight = replace(x, dims=(n * outputs[0], c, *sizes[1:])), replace(weight, dims=(k, per_group, *taps[1:]))
        return x, weight, steps[1:], paddings[1:], gaps[1:]
    if taps[1:] == [1, 1] and steps == (1, 1, 1) and paddings[1:] == (0, 0):
        x = replace(x, dims=(n, c, sizes[0], sizes[1] * sizes[2]))
        return x, replace(weight, dims=(k, per_group, taps[0], 1)), (1,), (paddings[0], 0), gaps[:1]
    if list(steps) == taps and set(paddings) == {0} and set(gaps) == {1} and groups == 1:
        each = math.prod(taps)
        x = replace(x, dims=(n, c * each, outputs[0], outputs[1] * outputs[2]))
        return x, replace(weight, dims=(k, c * each, 1, 1)), (1,), (0, 0), (1,)
    return None


def _directions(call: Call, name: str, index: int, count: int) -> Sizes:
    """Return the values of an argument in each direction, where it may have one for all of them."""
    given = call.ints(index)
    if len(given) not in (1, count):
        raise NotModelledError(f"the trace does not say the {name}")
    return given * count if len(given) == 1 else given


def _one(call: Call, name: str, index: int) -> int:
    """Return the only value of an argument."""
    values = call.ints(index)
    if len(set(values)) != 1:
        raise NotModelledError(f"the trace does not say the {name}")
    return values[0]


def convolution(call: Call) -> Operator:
    """aten::convolution(input, weight, bias, stride, padding, dilation, transposed, output_padding, groups)."""
    return _transposed(call, 3) if call.true(6) else _convolution(call, 3, 4, 5, 8)


def conv2d(call: Call) -> Operator:
    """aten::conv2d(input, weight, bias, stride, padding, dilation, groups), cudnn_convolution_relu."""
    return _convolution(call, 3, 4, 5, 6)


def cudnn_convolution(call: Call) -> Operator:
    """aten::cudnn_convolution(self, weight, padding, stride, dilation, groups, benchmark, ...)."""
    return _convolution(call, 3, 2, 4, 5)


def miopen_convolution(call: Call) -> Operator:
    """aten::miopen_convolution(self, weight, bias, padding, stride, dilation, groups, benchmark, deterministic)."""
    return _convolution(call, 4, 3, 5, 6)


def depthwise(call: Call) -> Operator:
    """aten::_conv_depthwise2d(self, weight, kernel_size, bias, stride, padding, dilation)."""
    return _convolution(call, 4, 5, 6, None)


def convolution_backward(call: Call) -> Operator:
    """aten::convolution_backward(grad_output, input, weight, bias_sizes, stride, ..., groups, output_mask).

    Which gradients are computed output_mask says. That of the bias, a sum over grad_output, is not counted.
    """
    mask = [word.strip().lower() == "true" for word in call.value(10).strip("[]() ").split(",")]
    if not any(mask[:2]):
        raise NotModelledError("the trace does not say which gradients of the convolution are computed")
    gradient = "both" if all(mask[:2]) else "input" if mask[0] else "weight"
    if call.true(7):
        return _transposed(call, 4, gradient=gradient)
    return _convolution(call, 4, 5, 6, 9, first=1, gradient=gradient)


def cudnn_gradient(call: Call) -> Operator:
    """aten::cudnn_convolution_backward_input, ..._weight, with the arguments of aten::cudnn_convolution_backward.

    These are input, grad_output, weight. The traces of 2021 that have these operators have shapes, but no values. FLOP
    and bytes follow from the sizes of grad_output as well as from stride and padding, so any stride and padding that
    lead to these sizes give the right operator.
    """
    x, dy, weight = (call.tensor(index) for index in range(3))
    if not len(x.dims) == len(dy.dims) == len(weight.dims) == 4:
        raise NotModelledError("the trace does not have the three tensors of the convolution")
    return _from_sizes(call, x, weight, dy.dims, gradient="input" if call.name.endswith("input") else "weight")


def _from_sizes(call: Call, x: Shape, weight: Shape, result: tuple[int, ...], gradient: str = "") -> Operator:
    """Return a convolution from the sizes of its three tensors, or one of its gradients."""
    if x.dims[1] % weight.dims[1]:
        raise NotModelledError(f"its {x.dims[1]} channels do not form groups of {weight.dims[1]}")
    _, c, h, w = x.dims
    _, per_group, r, s = weight.dims
    for stride in range(1, _LARGEST_STRIDE + 1):
        # the least padding that gives as many rows; since sizes are rounded down, a few more may do so too
        least = max(0, -((h - r - (result[2] - 1) * stride) // 2))
        for padding in range(least, min(least + stride, max(r, s) // 2 + 1)):
            sizes = [(length + 2 * padding - taps) // stride + 1 for length, taps in ((h, r), (w, s))]
            if sizes == [*result[2:]]:
                return Conv2d(
                    **_sizes(x, weight),
                    stride=stride,
                    padding=padding,
                    groups=c // per_group,
                    dtype=math_dtype(call, x),
                    backward=bool(gradient),
                    gradient=gradient or "both",
                )
    raise NotModelledError("no stride and padding lead from its input to its output")
