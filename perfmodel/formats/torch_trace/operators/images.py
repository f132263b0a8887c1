"""Maps calls of pools, of interpolation and of unfolding to operators of the model.

Each function takes a `Call` and returns the operator, or raises `NotModelledError` with the reason. The order of the
arguments is that of PyTorch's native_functions.yaml and derivatives.yaml. If a trace does not say how much a call
moves, the least possible is counted, so that a bound stays a bound.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from perfmodel.formats.torch_trace.call import Call, NotModelledError, Shape
from perfmodel.operators import Operator
from perfmodel.operators.elementwise import Elementwise
from perfmodel.operators.gemm import Gemm
from perfmodel.operators.pool2d import Pool2d
from perfmodel.operators.pool3d import Pool3d
from perfmodel.operators.reduction import Reduction
from perfmodel.operators.resample import Resample

#: numbers of PyTorch's modes of grid_sampler (aten/src/ATen/native/GridSamplerUtils.h) -> kind of `Resample`
_MODES = {0: "linear", 1: "nearest", 2: "cubic"}
#: parts of the names of upsampling -> kind of `Resample`
_ENLARGING = {"nearest": "nearest", "linear": "linear", "bicubic": "cubic"}

# --- pools


def max_pool(axes: int) -> Callable[[Call], Operator]:
    """Return the mapping of aten::max_pool2d_with_indices(self, kernel_size, stride, padding, dilation, ceil_mode)."""
    return _pool(axes, "max", 5)


def mean_pool(axes: int) -> Callable[[Call], Operator]:
    """Return the mapping of aten::avg_pool2d(self, kernel_size, stride, padding, ceil_mode, ...)."""
    return _pool(axes, "mean", 4)


def _pool(axes: int, kind: str, ceil_mode: int) -> Callable[[Call], Operator]:
    def build(call: Call) -> Operator:
        x = call.tensor(0)
        if not call.has_values:
            return _pool_of_sizes(x, call.result, axes, kind, backward=False)
        return _pool_of_windows(call, x, axes, kind, 1, ceil_mode)

    return build


def max_pool_backward(axes: int) -> Callable[[Call], Operator]:
    """Return the mapping of aten::max_pool2d_with_indices_backward(grad_output, self, kernel_size, stride, ...)."""
    return _pool_backward(axes, "max", 6)


def mean_pool_backward(axes: int) -> Callable[[Call], Operator]:
    """Return the mapping of aten::avg_pool2d_backward(grad_output, self, kernel_size, stride, padding, ...)."""
    return _pool_backward(axes, "mean", 5)


def _pool_backward(axes: int, kind: str, ceil_mode: int) -> Callable[[Call], Operator]:
    """Return the mapping of a pool's gradient: by both sizes where windows side by side have them, else by windows."""

    def build(call: Call) -> Operator:
        x, dy = call.tensor(1), call.tensor(0)
        try:
            return _pool_of_sizes(x, dy.dims, axes, kind, backward=True)
        except NotModelledError:
            if not call.has_values:
                raise
        return _pool_of_windows(call, x, axes, kind, 2, ceil_mode, backward=True)

    return build


def _pool_of_windows(
    call: Call, x: Shape, axes: int, kind: str, first: int, ceil_mode: int, *, backward: bool = False
) -> Operator:
    """Return a pool whose windows, strides, padding and, of a maximum, dilation are arguments from ``first`` on."""
    _check_rank(x, axes)
    sides, steps, paddings = (_by_axis(call.ints(first + place), axes) for place in range(3))
    if kind == "max" and set(call.ints(first + 3)) - {1}:
        raise NotModelledError("its windows have gaps (dilation)")
    if sides is None:
        raise NotModelledError("the trace does not say its windows")
    options = {"ceil_mode": call.true(ceil_mode), "backward": backward}
    return _pooled(x, axes, kind, sides, steps or sides, paddings or (0,) * axes, options)


def _pooled(
    x: Shape, axes: int, kind: str, sides: Sequence[int], steps: Sequence[int], paddings: Sequence[int],
    options: dict[str, Any],
) -> Operator:  # fmt: skip
    """Return a pool of windows along the last axes of x: of images, if all directions are alike."""
    *films, c = x.dims[:-axes]
    common: dict[str, Any] = {"n": math.prod(films), "c": c, "kind": kind, "dtype": x.dtype, **options}
    if axes == 2 and all(len(set(values)) == 1 for values in (sides, steps, paddings)):
        h, w = x.dims[-2:]
        return Pool2d(h=h, w=w, k=sides[0], stride=steps[0], padding=paddings[0], **common)
    found: dict[str, Any] = {}
    for names, values, missing in (
        ("d h w", x.dims[-axes:], 1), ("t r s", sides, 1), ("stride_d stride_h stride_w", steps, 1),
        ("padding_d padding_h padding_w", paddings, 0),
    ):  # fmt: skip
        found |= dict(zip(names.split(), (*[missing] * (3 - axes), *values), strict=True))
    return Pool3d(**found, **common)


def _by_axis(given: tuple[int, ...], axes: int) -> tuple[int, ...] | None:
    """Return the values of an argument along each axis, where one may stand for all; None where it has none."""
    if len(given) not in (0, 1, axes) or any(value < 0 for value in given):
        raise NotModelledError("the trace does not say its windows")
    return (given * axes if len(given) == 1 else given) or None


def _check_rank(x: Shape, axes: int) -> None:
    if len(x.dims) < axes + 1:
        raise NotModelledError(f"its input has the shape {x.text()}")


def _pool_of_sizes(x: Shape, result: tuple[int, ...], axes: int, kind: str, *, backward: bool) -> Operator:
    """Return a pool with as many outputs, of windows side by side: the least FLOP, and the same bytes."""
    if len(x.dims) < axes + 1 or len(result) != len(x.dims):
        raise NotModelledError("the trace does not say its windows")
    sides = [size // out if out else 0 for size, out in zip(x.dims[-axes:], result[-axes:], strict=True)]
    if min(sides) < 1 or any(
        size // side != out for size, side, out in zip(x.dims[-axes:], sides, result[-axes:], strict=True)
    ):
        raise NotModelledError("no window leads from its input to its output")
    return _pooled(x, axes, kind, sides, sides, (0,) * axes, {"backward": backward})


def adaptive_mean_pool(axes: int) -> Callable[[Call], Operator]:
    """Return the mapping of aten::_adaptive_avg_pool2d(self, output_size): to one element where sizes are missing."""

    def build(call: Call) -> Operator:
        x = call.tensor(0)
        _check_rank(x, axes)
        result = (_by_axis(call.ints(1), axes) if call.has_values else None) or (1,) * axes
        inside, outputs = x.dims[-axes:], math.prod(result)
        if outputs < 1:
            raise NotModelledError("the trace does not say the size of its result")
        if len(x.dims) == axes + 2 and any(size < out for size, out in zip(inside, result, strict=True)):
            # more outputs than elements: each is one or two of them
            return _resampled(x, result, "nearest", grid=False, backward=False)
        if any(size % out for size, out in zip(inside, result, strict=True)):
            return _adaptive(x, result, axes, "mean", backward=False)
        elements = math.prod(inside)
        return Reduction(rows=x.numel // elements * outputs, cols=elements // outputs, dtype=x.dtype)

    return build


def adaptive_max_pool(axes: int) -> Callable[[Call], Operator]:
    """Return the mapping of aten::adaptive_max_pool2d(self, output_size)."""

    def build(call: Call) -> Operator:
        x, result = call.tensor(0), _by_axis(call.ints(1), axes)
        _check_rank(x, axes)
        if result is None:
            raise NotModelledError("the trace does not say the size of its result")
        return _adaptive(x, result, axes, "max", backward=False)

    return build


def adaptive_backward(axes: int, kind: str) -> Callable[[Call], Operator]:
    """Return the mapping of aten::_adaptive_avg_pool2d_backward(grad_output, self), adaptive_max_pool2d_backward."""

    def build(call: Call) -> Operator:
        dy, x = call.tensor(0), call.tensor(1)
        if len(x.dims) < axes + 1 or len(dy.dims) != len(x.dims):
            raise NotModelledError("the trace does not say its windows")
        return _adaptive(x, dy.dims[-axes:], axes, kind, backward=True)

    return build


def unpooled(axes: int) -> Callable[[Call], Operator]:
    """Return the mapping of aten::max_unpool2d(self, indices, output_size): what the gradient of the pool does."""

    def build(call: Call) -> Operator:
        x, size = call.tensor(0), call.ints(2)
        if len(size) != axes or len(x.dims) < axes + 1:
            raise NotModelledError("the trace does not say the size of its result")
        dims = (*x.dims[:-axes], *size)
        return _adaptive(Shape(dims, x.dtype, math.prod(dims)), x.dims[-axes:], axes, "max", backward=True)

    return build


def _adaptive(x: Shape, result: Sequence[int], axes: int, kind: str, *, backward: bool) -> Operator:
    """Return a pool of equal windows with as many outputs: steps of whole elements, and windows up to the end.

    Where the sizes do not divide, those of PyTorch differ by one element and overlap as little as these.
    """
    inside = x.dims[-axes:]
    if any(not 1 <= out <= size for size, out in zip(inside, result, strict=True)):
        raise NotModelledError("its output is larger than its input")
    steps = [size // out for size, out in zip(inside, result, strict=True)]
    sides = [size - (out - 1) * step for size, out, step in zip(inside, result, steps, strict=True)]
    return _pooled(x, axes, kind, sides, steps, (0,) * axes, {"backward": backward})


# --- images of another size


def enlarged(call: Call) -> Operator:
    """aten::upsample_nearest2d(self, output_size, ...) and its kin: every pixel is written, and fewer are read."""
    x, size = call.tensor(0), call.ints(1)
    if not size or len(size) != len(x.dims) - 2 or min(size) < 1:
        raise NotModelledError("the trace does not say the size of its result")
    numel = math.prod(x.dims[:2]) * math.prod(size)
    return Elementwise(numel=numel, kind="copy", num_inputs=int(numel <= x.numel), dtype=x.dtype)


def enlarged_backward(call: Call) -> Operator:
    """aten::upsample_nearest2d_backward(grad_output, output_size, input_size, ...): sums of the gradient's pixels."""
    dy, size = call.tensor(0), call.ints(2)
    rows = math.prod(size)
    if not size or rows < 1:
        raise NotModelledError("the trace does not say the size of its result")
    if dy.numel % rows == 0:
        return Reduction(rows=rows, cols=dy.numel // rows, dtype=dy.dtype)
    kind = next((kind for part, kind in _ENLARGING.items() if part in call.name), "linear")
    return _resampled(Shape(size, dy.dtype, rows), dy.dims[2:], kind, grid=False, backward=True)


def _resampled(x: Shape, result: Sequence[int], kind: str, *, grid: bool, backward: bool) -> Operator:
    """Return the samples of images x [n, c, ...] at some places along the same axes."""
    axes = len(result)
    if not 1 <= axes <= 3 or len(x.dims) != axes + 2:
        raise NotModelledError(f"its input has the shape {x.text()}")
    missing = [1] * (3 - axes)
    before: dict[str, Any] = dict(zip("dhw", (*missing, *x.dims[2:]), strict=True))
    after: dict[str, Any] = dict(zip("opq", (*missing, *result), strict=True))
    n, c = x.dims[:2]
    return Resample(n=n, c=c, **before, **after, axes=axes, kind=kind, grid=grid, backward=backward, dtype=x.dtype)


def grid_samples(input_: int, grid: int, mode: int | None, *, backward: bool = False) -> Callable[[Call], Operator]:
    """Return the mapping of aten::grid_sampler_2d(input, grid, interpolation_mode, ...), and of its gradient.

    Parameters
    ----------
    input_, grid, mode : positions of these arguments; without a mode it joins neighbours linearly (cuDNN).
    backward : the gradient, by the input and by the grid.
    """

    def build(call: Call) -> Operator:
        x, places = call.tensor(input_), call.tensor(grid)
        given = call.ints(mode) if mode is not None and call.has_values else (0,)
        kind = _MODES.get(given[0]) if given else None
        if kind is None:
            raise NotModelledError("the trace does not say how it joins pixels")
        return _resampled(x, places.dims[1:-1], kind, grid=True, backward=backward)

    return build


def affine_grid(call: Call) -> Operator:
    """aten::affine_grid_generator(theta [n, 2, 3], size, align_corners): each place times the matrix of its image."""
    theta, size = call.tensor(0), call.ints(1)
    if len(theta.dims) != 3 or len(size) < 3:
        raise NotModelledError("the trace does not say the size of its result")
    images, axes, columns = theta.dims
    return Gemm(batch=images, m=math.prod(size[2:]), n=axes, k=columns, dtype=theta.dtype)


# --- pixels of windows, side by side


def unfolded(call: Call) -> Operator:
    """aten::im2col(self, kernel_size, dilation, padding, stride): each pixel is read once, and written many times."""
    x = call.tensor(0)
    kernel, dilation, padding, stride = (_by_axis(call.ints(place), 2) for place in range(1, 5))
    if len(x.dims) not in (3, 4) or not (kernel and dilation and padding and stride) or min(stride) < 1:
        raise NotModelledError("the trace does not say its windows")
    *films, c, h, w = x.dims
    windows = [
        (size + 2 * pad - gap * (side - 1) - 1) // step + 1
        for size, pad, gap, side, step in zip((h, w), padding, dilation, kernel, stride, strict=True)
    ]
    sizes: dict[str, Any] = {"n": math.prod(films), "c": c, "h": h, "w": w}
    return Resample(**sizes, p=math.prod(kernel), q=math.prod(windows), kind="nearest", dtype=x.dtype)


def folded(call: Call) -> Operator:
    """aten::col2im(self, output_size, kernel_size, ...): sums of the pixels of windows that overlap."""
    x, size, kernel = call.tensor(0), call.ints(1), _by_axis(call.ints(2), 2)
    if len(size) != 2 or not kernel or len(x.dims) not in (2, 3) or min(*kernel, *size) < 1:
        raise NotModelledError("the trace does not say its windows")
    if x.dims[-2] % math.prod(kernel):
        raise NotModelledError(f"its {x.dims[-2]} numbers are not of windows of {math.prod(kernel)}")
    rows = math.prod(x.dims[:-2]) * (x.dims[-2] // math.prod(kernel)) * math.prod(size)
    return Reduction(rows=rows, cols=max(1, x.numel // rows), dtype=x.dtype)
