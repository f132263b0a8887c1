"""Convolution: torch's direct kernel, im2col with a product, Winograd's F(2x2, 3x3) and Fourier in torch operators."""

from __future__ import annotations

from typing import Any

import torch
from torch.nn import functional

from perfmodel.kernels.algorithms.base import Call, Contest, Inputs, beyond, normal
from perfmodel.operators.conv2d import Conv2d

#: transforms of F(2x2, 3x3): of outputs, filters and images (Lavin and Gray 2016, arXiv 1509.09308, section 4.1)
_OUTPUT = ((1.0, 1.0, 1.0, 0.0), (0.0, 1.0, -1.0, -1.0))
_FILTER = ((1.0, 0.0, 0.0), (0.5, 0.5, 0.5), (0.5, -0.5, 0.5), (0.0, 0.0, 1.0))
_IMAGE = ((1.0, 0.0, -1.0, 0.0), (0.0, 1.0, 1.0, 0.0), (0.0, -1.0, 1.0, 0.0), (0.0, 1.0, 0.0, -1.0))
#: error of an fp32 convolution against float64, over its largest value; Winograd's and Fourier's sums lose more
TOLERANCE = {"direct": 1e-5, "im2col": 1e-5, "winograd_f23": 1e-4, "fft": 1e-4}


def _operator(size: float) -> Conv2d:
    return Conv2d(n=2, c=size, h=28, w=28, k=size, r=3, s=3, padding=1)


def _inputs(op: Conv2d, device: str, seed: int) -> Inputs:
    x = normal((int(op.n), int(op.c), int(op.h), int(op.w)), device, seed)
    return {"x": x, "weight": normal((int(op.k), int(op.c), int(op.r), int(op.s)), device, seed + 1)}


def _direct(inputs: Inputs, op: Conv2d) -> Call:
    x, weight = inputs["x"], inputs["weight"]
    return lambda: functional.conv2d(x, weight, padding=1)


def _im2col(inputs: Inputs, op: Conv2d) -> Call:
    x, weight, shape = inputs["x"], inputs["weight"], (int(op.n), int(op.k), int(op.p), int(op.q))
    return lambda: (weight.flatten(1) @ functional.unfold(x, 3, padding=1)).view(shape)


def _winograd(inputs: Inputs, op: Conv2d) -> Call:
    """Return F(2x2, 3x3): 4 x 4 tiles of images at a distance of 2, 16 products, 2 x 2 outputs of each tile."""
    x, weight = inputs["x"], inputs["weight"]
    output, filters, image = (x.new_tensor(rows) for rows in (_OUTPUT, _FILTER, _IMAGE))
    n, k, p, q = int(op.n), int(op.k), int(op.p), int(op.q)
    rows, cols = (p + 1) // 2, (q + 1) // 2

    def call() -> torch.Tensor:
        transformed = torch.einsum("ia,kcab,jb->ijkc", filters, weight, filters).reshape(16, k, -1)
        padded = functional.pad(x, (1, 2 * cols - q + 1, 1, 2 * rows - p + 1))
        tiles = padded.unfold(2, 4, 2).unfold(3, 4, 2)
        spread = torch.einsum("ia,nchwab,jb->ijcnhw", image, tiles, image).reshape(16, x.shape[1], -1)
        products = torch.bmm(transformed, spread).view(4, 4, k, n, rows, cols)
        back: torch.Tensor = torch.einsum("ia,abknhw,jb->nkhiwj", output, products, output)
        return back.reshape(n, k, 2 * rows, 2 * cols)[:, :, :p, :q]

    return call


def _fourier(inputs: Inputs, op: Conv2d) -> Call:
    """Return products of transforms of whole images, padded so that nothing wraps around."""
    x, weight = inputs["x"], inputs["weight"]
    size = [int(op.h) + 2, int(op.w) + 2]
    p, q = int(op.p), int(op.q)

    def call() -> Any:
        images = torch.fft.rfft2(functional.pad(x, (1, 1, 1, 1)), s=size)
        filters = torch.fft.rfft2(weight, s=size).conj()
        product = torch.einsum("nchw,kchw->nkhw", images, filters)
        return torch.fft.irfft2(product, s=size)[:, :, :p, :q]

    return call


def _check(op: Conv2d, inputs: Inputs, output: Any, algorithm: str) -> str:
    expected = functional.conv2d(inputs["x"].double(), inputs["weight"].double(), padding=1)
    return beyond(output, expected, TOLERANCE[algorithm])


CONTEST = Contest(
    "convolution",
    sizes=(8.0, 32.0, 128.0),
    operator=_operator,
    inputs=_inputs,
    kernels={"direct": _direct, "im2col": _im2col, "winograd_f23": _winograd, "fft": _fourier},
    check=_check,
    more_sizes=(256.0, 512.0),
)
