"""Convolution: implicit GEMM, im2col, direct, Winograd F(2x2, 3x3) fused and F(4x4, 3x3) unfused, and FFT.

Winograd's F(4x4, 3x3) does a quarter of the products and writes and reads 2.25 (c + k) n p q numbers more, so that it
pays where c k / (c + k) exceeds s F / (3 B), with F the rate of products and B the bandwidth: 25 in fp32 on a V100.
F(2x2, 3x3) in one kernel does 2.25 times fewer products and no such traffic, which pays below. Which of them a library
runs, the latency model decides (`perfmodel.prediction.latency.conv2d.usable`): none on the tensor engines of NVIDIA's
machines and of AMD's accelerators, where products of 16 bits are fast. A transform of Fourier is worth its numbers for
filters of 5 x 5 and more, between 32 channels and more.
"""

from __future__ import annotations

import math
from typing import Any

from perfmodel.core.dtypes import dtype_bytes
from perfmodel.core.hardware import Hardware
from perfmodel.errors import UsageError
from perfmodel.operators.conv2d import Conv2d
from perfmodel.operators.gemm import Gemm
from perfmodel.prediction.algorithms.base import Cost, Problem, Rates, counted, in_sequence, predicted
from perfmodel.prediction.ceilings import resolve_peak
from perfmodel.prediction.conditions import Conditions
from perfmodel.prediction.latency import conv2d as kernels
from perfmodel.prediction.latency.constants import Constants, constants
from perfmodel.prediction.latency.machine import Machine

#: kernels of one call: Winograd's fused kernel has one for the filters before it, the separate one a transform of
#: images, filters and outputs around the products, Fourier's as many
KERNELS = {"implicit_gemm": 1.0, "direct": 1.0, "im2col": 2.0, "winograd_f23": 2.0, "winograd_f43": 4.0, "fft": 4.0}
#: why a GPU's libraries do not unfold in memory; its time stands beside the others all the same
NO_IM2COL = "moves the images r s times; libraries of GPUs unfold them on the fly"
#: algorithms without a kernel for gradients, and the one that has none for those of the weights: its product over
#: pixels cannot be transformed in a block (cuDNN API reference, cudnnConvolutionBwdFilterAlgo_t: "not implemented")
NO_GRADIENT = "has no kernel for gradients"
#: a side of Fourier's tiles, and the smallest filter and fewest channels for which cuDNN's choice is this algorithm
FFT_SIDES, FFT_TAPS, FFT_CHANNELS = (8.0, 16.0, 32.0), 5.0, 32.0
#: passes over transformed numbers where transforms are a framework's operators: written by the transform, read and
#: written into the order of the product, read by it, written by it, and back
OPERATOR_PASSES = 6.0
#: bytes of a complex number in fp32, and the FLOP of a complex multiply-add
COMPLEX_BYTES, COMPLEX_FLOP = 8.0, 8.0


def costs(op: Conv2d, hardware: Hardware) -> list[Cost]:
    """Return what each algorithm takes for a convolution."""
    plain = op.changed(algorithm="implicit_gemm")
    if op.backward:
        return _gradients(plain, hardware)
    if hardware.kind == "cpu":
        return _on_cpu(plain, hardware)
    machine = Machine.of(hardware, resolve_peak(op, hardware))
    known = constants(kernels.FAMILY, hardware, "", op.dtype)
    ends, im2col = _ends(plain, hardware), plain.changed(algorithm="im2col")
    unfolded = float(im2col.tensors()[3].size_bytes)
    return [
        *(_kernel(name, plain, machine, known, ends) for name in kernels.ALGORITHMS),
        predicted(
            "im2col",
            im2col,
            hardware,
            kernels=2.0 * float(kernels.unfoldings(im2col, hardware)),
            workspace_bytes=unfolded,
            why_not=NO_IM2COL,
        ),
        _fourier(plain, hardware, machine, known),
    ]


def _gradients(op: Conv2d, hardware: Hardware) -> list[Cost]:
    """Return what each algorithm takes for a gradient, whose time is ``slower`` than that of such a convolution.

    Raises
    ------
    UsageError
        When it is both gradients, for each of which a library chooses.
    """
    if op.gradient == "both":
        raise UsageError(
            "gradient=both are two convolutions, and a library chooses an algorithm for each.",
            place=op.op,
            remedy="gradient=input or gradient=weight.",
        )
    if hardware.kind == "cpu":
        names = ("im2col", "implicit_gemm", "winograd_f23", "winograd_f43", "fft")
        return [predicted("direct", op, hardware), *(Cost(name, why_not=NO_GRADIENT) for name in names)]
    machine = Machine.of(hardware, resolve_peak(op, hardware))
    known = constants(kernels.FAMILY, hardware, "", op.dtype)
    slower = constants(kernels.BACKWARD, hardware, "", op.dtype).values["slower"]
    like = _as_convolution(op)
    missing = ("im2col", "winograd_f23") if op.gradient == "weight" else ("im2col",)
    ends = _ends(op, hardware)
    costs = [_kernel(name, like, machine, known, ends) for name in kernels.ALGORITHMS if name not in missing]
    costs.append(_fourier(like, hardware, machine, known))
    return [*(cost.slower(slower) for cost in costs), *(Cost(name, why_not=NO_GRADIENT) for name in missing)]


def _as_convolution(op: Conv2d) -> Conv2d:
    """Return the convolution of dy by turned filters that the input's gradient is with stride 1.

    Channels and filters change places, and the padding is what the filter reaches over less the padding.
    """
    padding = op.dilation * (op.r - 1) - op.padding
    if op.gradient == "weight" or op.stride != 1 or op.groups != 1 or op.r != op.s or padding < 0:
        return op
    return op.changed(backward=False, gradient="both", c=op.k, k=op.c, h=op.p, w=op.q, padding=padding)


def _ends(op: Conv2d, hardware: Hardware) -> tuple[float, float]:
    """Return the ends of the interval of a predicted call over its time, for each algorithm that may be the call."""
    call = predicted("", op, hardware)
    return call.time_low_s / call.time_s, call.time_high_s / call.time_s


def _kernel(name: str, op: Conv2d, machine: Machine, known: Constants, ends: tuple[float, float]) -> Cost:
    """Return one of the algorithms that the latency family knows; ``ends`` are its interval over its time."""
    why_not = _why_not(name, op, machine)
    if why_not.startswith("needs"):  # it has no such form, whatever it would cost
        return Cost(name, why_not=why_not)
    terms = kernels.algorithm_terms(op, machine, known.values, Conditions(), of=(name,))[name]
    time_s, work = float(terms.time_s), op.work()
    low, high = ends
    return Cost(
        name,
        flop=float(op.flop()) * PRODUCTS.get(name, 1.0),
        bytes=float(work.bytes) + _transformed_bytes(name, op),
        kernels=KERNELS[name],
        workspace_bytes=_workspace_bytes(name, op),
        time_s=time_s,
        time_low_s=time_s * low,
        time_high_s=time_s * high,
        why_not=why_not,
        basis=f"{kernels.FAMILY.name}: {known.source}",
    )


#: multiplications over those of the direct algorithm: 16 for 4 outputs of 9 taps, 36 for 16
PRODUCTS = {"winograd_f23": 16.0 / 36.0, "winograd_f43": 36.0 / 144.0}


def _workspace_bytes(name: str, op: Conv2d) -> float:
    """Return the transformed filters of the fused kernel; those, images and outputs of the separate ones [B]."""
    filters = float(op.k * op.c) * dtype_bytes(op.dtype)
    if name == "winograd_f23":
        return 16.0 * filters
    return kernels.POINTS * filters + _transformed_bytes(name, op) / 2.0 if name == "winograd_f43" else 0.0


def _transformed_bytes(name: str, op: Conv2d) -> float:
    """Return the bytes of transformed images and outputs that are written and read: 2 x 36 / 16 (c + k) n p q s."""
    if name != "winograd_f43":
        return 0.0
    tiles = op.n * math.ceil(op.p / kernels.SIDE) * math.ceil(op.q / kernels.SIDE)
    return float(2.0 * kernels.POINTS * tiles * (op.c + op.k) * dtype_bytes(op.dtype))


def _why_not(name: str, op: Conv2d, machine: Machine) -> str:
    """Return why an algorithm does not apply, "" where `kernels.usable` says that libraries run it."""
    if kernels.usable(name, op, machine):
        return ""
    if name == "direct":
        return "every product loads both factors: for depthwise filters only"
    if not (op.r == 3 and op.s == 3):
        return f"needs 3 x 3 filters, not {op.r:g} x {op.s:g}"
    if op.stride != 1 or op.dilation != 1 or op.groups != 1:
        return "needs stride 1, dilation 1 and one group"
    if machine.engine == "tensor":
        return f"on the tensor engine products in {op.dtype} cost less than the transforms"
    if not op.winograd():
        return f"libraries have it in fp32 and fp16, not in {op.dtype}"
    if op.layout != "nchw":
        return f"libraries have it in NCHW, not in {op.layout.upper()}"
    return f"cuDNN's heuristics do not choose it for {op.c:g} channels from Hopper on"


def _fourier(op: Conv2d, hardware: Hardware, machine: Machine, known: Constants) -> Cost:
    """Return products of transforms: of tiles of images, of filters, and back.

    A tile of side t has t (t / 2 + 1) complex points, since the images are real, and t - r + 1 outputs along a side.
    Each transform is written once and read once; the products are complex: 8 FLOP for 2 r s of the direct count.
    """
    taps = max(op.r, op.s)
    side = _side(float(max(op.p, op.q) + taps - 1.0), float(taps))
    out = side - taps + 1.0
    points = side * (side / 2.0 + 1.0)
    tiles = float(op.n) * math.ceil(op.p / out) * math.ceil(op.q / out) if out > 0 else 0.0
    channels, filters = float(op.c), float(op.k)
    flop = COMPLEX_FLOP * points * tiles * channels * filters
    spectra = COMPLEX_BYTES * points * (tiles * (channels + filters) + channels * filters)
    moved = float(op.work().bytes) + 2.0 * spectra
    c, memory = known.values, machine.bandwidth_bytes_per_s
    time_s = flop / (c["product"] * machine.vector_flop_per_s) + moved / (c["transform"] * memory) + 4.0 * c["launch"]
    return counted("fft", time_s, flop=flop, moved_bytes=moved, kernels=KERNELS["fft"], workspace_bytes=spectra,
                   why_not=_why_not_fourier(op, machine))  # fmt: skip


def _side(needed: float, taps: float) -> float:
    """Return the side of the tiles: the smallest that holds all outputs with their borders, at most 32.

    >>> _side(11.0, 5.0), _side(100.0, 5.0)
    (16.0, 32.0)
    """
    return next((side for side in FFT_SIDES if side >= needed), FFT_SIDES[-1])


def _why_not_fourier(op: Conv2d, machine: Machine) -> str:
    if op.stride != 1 or op.dilation != 1 or op.groups != 1:
        return "needs stride 1, dilation 1 and one group"
    if max(op.r, op.s) > FFT_SIDES[-1] / 2.0:
        return "filters of over 16 taps fill its tiles of 32"
    if machine.engine == "tensor":
        return f"on the tensor engine products in {op.dtype} cost less than the transforms"
    if max(op.r, op.s) < FFT_TAPS:
        return "filters below 5 x 5 do not pay for the transforms"
    if min(op.c, op.k) < FFT_CHANNELS:
        return f"below {FFT_CHANNELS:g} channels transforms cost more than products"
    return "" if op.dtype == "fp32" else "libraries have it in fp32"


def _on_cpu(op: Conv2d, hardware: Hardware) -> list[Cost]:
    """Return the direct kernel of a CPU, and the copy of im2col with its product."""
    rates = Rates.for_op(op, hardware)
    unfolded = float(op.changed(algorithm="im2col").tensors()[3].size_bytes)
    copy_s = rates.time_s(0.0, unfolded + float(op.tensors()[0].size_bytes))
    copy = counted("unfold", copy_s, flop=0.0, moved_bytes=2.0 * unfolded, kernels=1.0)
    product = Gemm(batch=op.n, m=op.k, n=op.p * op.q, k=op.c * op.r * op.s, dtype=op.dtype)
    im2col = in_sequence("im2col", [(1.0, copy), (1.0, predicted("product", product, hardware))],
                         workspace_bytes=unfolded, why_not="" if op.groups == 1 else "needs one group")  # fmt: skip
    rest = [Cost(name, why_not="a kernel of GPU libraries") for name in ("implicit_gemm", "winograd_f43")]
    return [predicted("direct", op, hardware), im2col, _operators_f23(op, rates), _operators_fft(op, rates), *rest]


def _operators_f23(op: Conv2d, rates: Rates) -> Cost:
    """Return Winograd's F(2x2, 3x3) in a framework's operators: 16 numbers of a tile, in and out of every transform."""
    why_not = "" if bool(op.winograd()) else "needs 3 x 3 filters, stride, dilation and groups of 1"
    tiles = float(op.n) * math.ceil(op.p / 2.0) * math.ceil(op.q / 2.0)
    spread = 16.0 * (tiles * float(op.c + op.k) + float(op.c * op.k)) * dtype_bytes(op.dtype)
    flop, moved = float(op.flop()) / 2.25, OPERATOR_PASSES * spread
    time_s = 8.0 * rates.start_s + flop / rates.flop_per_s + moved / rates.bytes_per_s
    return counted("winograd_f23", time_s, flop=flop, moved_bytes=moved, kernels=8.0, workspace_bytes=2.0 * spread,
                   why_not=why_not)  # fmt: skip


def _operators_fft(op: Conv2d, rates: Rates) -> Cost:
    """Return transforms of whole images in a framework's operators, whose products want the points outermost."""
    points = float(op.h + 2 * op.padding) * (float(op.w + 2 * op.padding) / 2.0 + 1.0)
    spectra = COMPLEX_BYTES * points * float(op.n * (op.c + op.k) + op.c * op.k)
    flop, moved = COMPLEX_FLOP * points * float(op.n * op.c * op.k), OPERATOR_PASSES * spectra
    time_s = 8.0 * rates.start_s + flop / rates.flop_per_s + moved / rates.bytes_per_s
    return counted("fft", time_s, flop=flop, moved_bytes=moved, kernels=8.0, workspace_bytes=2.0 * spectra,
                   why_not="" if op.stride == 1 and op.groups == 1 else "needs stride 1 and one group")  # fmt: skip


def _resized(op: Any, size: float) -> Conv2d:
    """Return the convolution with other numbers of channels and filters, equal to each other."""
    channels = max(op.groups, math.floor(size / op.groups) * op.groups)
    resized: Conv2d = op.changed(c=channels, k=channels)
    return resized


PROBLEM = Problem(
    "convolution",
    op="conv2d",
    size="channels",
    sizes=(4.0, 2048.0),
    costs=costs,
    resized=_resized,
    defaults={"n": 16, "c": 64, "h": 56, "w": 56, "k": 64, "r": 3, "s": 3, "padding": 1},
    note="Sizes are channels and filters, equal to each other.",
)
