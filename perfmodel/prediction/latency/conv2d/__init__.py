"""Convolutions: the fastest of the algorithms that libraries have, each as a matrix product.

Implicit GEMM multiplies the unfolded images by the filters. Winograd's minimal filtering (Lavin and Gray 2016, arXiv
1509.09308) multiplies transformed tiles instead: F(2x2, 3x3) in one fused kernel does 2.25 times fewer
multiplications, F(4x4, 3x3) in separate kernels 4 times fewer, and moves the transformed tiles through memory.

On tensor engines the products are those of the machine's GEMMs, with the constants fitted there. Their kernels load
vectors of 16 B of neighbouring channels: tensors in the order NCHW are transposed before and after, by kernels of their
own, and channels are padded to whole vectors. Where those of images do not fill one, the vector engine runs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, cast

from perfmodel.core.dtypes import dtype_bytes
from perfmodel.core.hardware import Hardware
from perfmodel.core.vocabulary import ErrorSource
from perfmodel.core.work import anywhere, clipped, everywhere, log2, where
from perfmodel.operators.base import Operator
from perfmodel.operators.conv2d import Conv2d
from perfmodel.prediction.conditions import Conditions
from perfmodel.prediction.designs import product_line
from perfmodel.prediction.latency import gemm
from perfmodel.prediction.latency.constants import constants
from perfmodel.prediction.latency.conv2d.parts import (
    GATHERING,
    IM2COL,
    LAYOUT,
    TRANSFORMS,
    Sizes,
    between,
    fastest,
    only,
)
from perfmodel.prediction.latency.conv2d.products import IMAGE_CHANNELS, direct, implicit, unfoldings
from perfmodel.prediction.latency.conv2d.steps import STEP_BYTES, VECTOR_BYTES
from perfmodel.prediction.latency.conv2d.winograd import POINTS, SIDE, fused, separate
from perfmodel.prediction.latency.doubts import Doubt
from perfmodel.prediction.latency.family import Constant, Family, Values, forward_only
from perfmodel.prediction.latency.gemm.alignment import ALIGNMENT
from perfmodel.prediction.latency.machine import Machine
from perfmodel.prediction.latency.terms import Terms

__all__ = [
    "ALGORITHMS",
    "BACKWARD",
    "FAMILIES",
    "FAMILY",
    "POINTS",
    "SERVES",
    "SIDE",
    "algorithm_terms",
    "unfoldings",
    "usable",
]

SERVES = {"conv2d": ("conv2d",), "conv2d_backward": ("conv2d",)}

CONSTANTS = (
    Constant("math", "", 0.8, 0.2, 1.0, 0.12, "share of the peak that implicit GEMMs reach"),
    Constant("product", "", 0.75, 0.2, 1.0, 0.12, "share of the peak that the products of Winograd's tiles reach"),
    Constant("fused", "", 0.7, 0.1, 1.0, 0.25, "share of the peak that the fused Winograd kernel reaches"),
    Constant("eta", "", 0.7, 0.3, 1.0, 0.15, "share of the datasheet bandwidth"),
    Constant("transform", "", 0.6, 0.1, 2.0, 0.2, "the same for Winograd's transforms of images and outputs"),
    Constant("filters", "", 0.4, 0.02, 2.0, 0.3, "the same for its transform of the filters, in single numbers"),
    Constant("fill", "", 30.0, 1.0, 1000.0, 0.4, "length of the sum that filling and draining a block takes"),
    Constant("fused_fill", "", 20.0, 1.0, 1000.0, 0.4, "number of channels that the fused kernel's transforms take"),
    Constant("launch", "s", 2.7e-6, 0.5e-6, 60e-6, 0.3, "start and drain of one kernel", True),
    Constant("energy", "J/FLOP", 3e-12, 1e-13, 1e-10, 0.15, "energy of an fp32 FLOP at the lowest voltage, in TSMC 4N"),
)


def formula(op: Operator, machine: Machine, c: Values, conditions: Conditions) -> Terms:
    """Return the terms of the fastest algorithm that can do the convolution.

    - implicit GEMM: ``groups`` products (n p q) x (k / groups) x (c / groups r s); each tensor crosses memory once.
      "im2col" unfolds in a kernel before. Addresses of filters with several taps take time of their own.
    - direct: every product from registers, at an eighth of the vector peak; for depthwise filters. Of 12,103
      convolutions of 3 x 3 without groups cuDNN chose it for none (NeuSight @ 6945927d9afc), and three small ones on an
      H200 take 1.4 to 3.2 times as long as it would (own measurements, torch 2.11.0, 2026-11-23).
    - Winograd, where `Conv2d.winograd` says so, in NCHW: fused, on the vector engine only, blocks of 32 tiles x 32
      filters of 16 products; or 36 separate products (n p q / 16) x k x c, whose inputs and outputs pass through memory
      once more for the transforms.
    """
    conv = cast(Conv2d, op)
    sizes = Sizes.of(conv)
    algorithms = [implicit(conv, sizes, machine, c, conditions)]
    if conv.algorithm == "im2col":
        return algorithms[0]
    by_name = _by_name(conv, sizes, machine, c, conditions)
    found: dict[str, Terms] = {}
    for name in ("direct", "winograd_f43", "winograd_f23"):
        can = usable(name, conv, machine)
        if anywhere(can):
            found[name] = only(can, by_name[name]())
    algorithms += found.values()
    if "winograd_f43" in found and anywhere(conv.c > WINOGRAD_CHANNELS) and _from_hopper(machine):
        without = [algorithms[0], *(terms for name, terms in found.items() if not name.startswith("winograd"))]
        return between(fastest(algorithms), fastest(without), _unlike_winograd(conv))
    return fastest(algorithms)


def usable(name: str, conv: Conv2d, machine: Machine) -> Any:
    """Return where libraries run a convolution by one of `ALGORITHMS`: what `formula` takes the fastest of.

    cuDNN's Winograd kernels want NCHW (API reference, supported algorithms for cudnnConvolutionForward, 2D). The fused
    one has no form for the weights' gradient (cudnnConvolutionBwdFilterAlgo_t: "not implemented"). Groups of more than
    one channel take the kernels of all others: two on an H200 take 30 and 3.2 times as long as the direct kernel would
    (own record, 2026-11-27; in view).
    """
    if name == "direct":
        return (conv.groups > 1) & (conv.groups == conv.c)
    if not name.startswith("winograd"):
        return True
    fused_form = machine.engine == "vector" and not (conv.backward and conv.gradient == "weight")
    has_form = conv.layout == "nchw" and (name == "winograd_f43" or fused_form)
    return conv.winograd() & _has_winograd(conv, machine) & has_form


#: channels up to which cuDNN's heuristics are known to choose Winograd's algorithm in fp32 from Hopper on, and from
#: which they are known not to. Its time follows the memory's bandwidth, as 128 channels do on an H100 and an H200; 320,
#: 512, 1280 and 1920 take as long on both, up to 4 times what it would, and 216, 304, 640 and 672 on an H200 what
#: implicit GEMMs say (own measurements, torch 2.11.0, cuDNN 9.19, without its benchmark mode)
WINOGRAD_CHANNELS, IMPLICIT_CHANNELS = 128.0, 216.0
#: where between them the choice changes, nobody measured: where any place (in ln c) is as likely, ln of the time
#: deviates by half of ln of both algorithms' ratio (3 to 4 times) in the middle, and by less towards the ends
CHOICE_DEVIATION = (0.3, 0.5, 0.5)
#: matrix instruction of the engines on which a library has Winograd's algorithm in fp16: AMD's Radeons. MIOpen's
#: Winograd Fury is for them alone (ROCm/MIOpen @ 01266f77843e, src/solver/conv/conv_wino_fury_RxS.cpp: gfx11, fp16),
#: and three layers of an RX 7900 XTX take 0.4 to 0.6 times as long in fp16 as in bf16 (ROCm issue 5191). cuDNN has it
#: no more from Hopper on: convolutions in fp16 take as long as in bf16 on H100 and H200 (own measurements, torch
#: 2.11.0, cuDNN 9.19). No measured row says that it runs on older tensor cores, whose products cost less than the
#: transforms
WINOGRAD_ENGINES = ("wmma",)


def _has_winograd(conv: Conv2d, machine: Machine) -> Any:
    """Return whether libraries have Winograd's algorithm for a machine's engine, and choose it."""
    if machine.engine == "tensor":
        return machine.matrix_instruction in WINOGRAD_ENGINES
    return (conv.c < IMPLICIT_CHANNELS) if _from_hopper(machine) else True


def _unlike_winograd(conv: Conv2d) -> Any:
    """Return how likely cuDNN's heuristics do not choose Winograd's algorithm from Hopper on, in fp32."""
    known = log2(IMPLICIT_CHANNELS / WINOGRAD_CHANNELS)
    return clipped(log2(1.0 * conv.c / WINOGRAD_CHANNELS) / known, 0.0, 1.0)


def _either(conv: Conv2d, machine: Machine, conditions: Conditions) -> Any:
    """Whether a convolution has so many channels that nobody knows which algorithm cuDNN chooses from Hopper on."""
    if machine.engine != "vector" or not _from_hopper(machine) or conv.layout != "nchw":
        return False
    return conv.winograd() & (conv.c > WINOGRAD_CHANNELS) & (conv.c < IMPLICIT_CHANNELS)


def _from_hopper(machine: Machine) -> bool:
    return machine.matrix_instruction in ("wgmma", "tcgen05")


#: the algorithms that `algorithm_terms` knows
ALGORITHMS = ("implicit_gemm", "direct", "winograd_f23", "winograd_f43")


def algorithm_terms(
    conv: Conv2d, machine: Machine, c: Values, conditions: Conditions, *, of: Sequence[str] = ALGORITHMS
) -> dict[str, Terms]:
    """Return the terms of each algorithm by its name, whether or not it can do the convolution."""
    by_name = _by_name(conv, Sizes.of(conv), machine, c, conditions)
    return {name: by_name[name]() for name in of}


def _by_name(
    conv: Conv2d, sizes: Sizes, machine: Machine, c: Values, conditions: Conditions
) -> dict[str, Callable[[], Terms]]:
    """Return what finds the terms of each of `ALGORITHMS`."""
    return {
        "implicit_gemm": lambda: implicit(conv, sizes, machine, c, conditions),
        "direct": lambda: direct(conv, sizes, machine, c),
        "winograd_f23": lambda: fused(sizes, machine, c, conditions),
        "winograd_f43": lambda: separate(sizes, machine, c, conditions),
    }


def gradient(op: Operator, machine: Machine, c: Values, conditions: Conditions) -> Terms:
    """Return the terms of a gradient: those of a convolution of its sizes, with the constants of convolutions.

    At stride 1 that of the input is a convolution of dy (`_turned`), whose kernels pad and step as all others do.
    """
    conv = cast(Conv2d, op)
    values: Values = {constant.name: constant.default for constant in FAMILY.all_constants}
    if machine.hardware is not None:
        values = constants(FAMILY, machine.hardware, conditions.library, op.dtype).values
    turns = _turns(conv)
    if not anywhere(turns):
        terms = formula(conv, machine, values, conditions)
    else:
        terms = formula(_turned(conv, turns), machine, values, conditions)
        if not everywhere(turns):
            others = only(turns ^ True, formula(conv, machine, values, conditions))
            terms = fastest([only(turns, terms), others])
    slower = c["slower"]
    return Terms({term: slower * time for term, time in terms.adds.items()}, terms.alone)


def _turns(conv: Conv2d) -> Any:
    """Return where a gradient is a convolution itself: that of the input, where no tap is left out.

    Libraries choose their kernels for depthwise filters by the channels of the image, not of dy.
    """
    if conv.gradient != "input":
        return False
    every = (conv.stride == 1) & (conv.dilation == 1) & (conv.r == conv.s) & (conv.padding < conv.r)
    return every & ((conv.groups == 1) | ((conv.groups < conv.c) & (conv.groups < conv.k)))


def _turned(conv: Conv2d, turns: Any) -> Conv2d:
    """Return the convolution of dy with turned filters whose result is the gradient of the input, where it ``turns``.

    dx[c] = sum over k of dy[k] * w[k, c] turned by 180 degrees: channels and filters change places, and zeros around dy
    fill up the windows. Elsewhere its image is one filter large.
    """
    return Conv2d(
        n=conv.n,
        c=conv.k,
        h=where(turns, conv.p, conv.r),
        w=where(turns, conv.q, conv.s),
        k=conv.c,
        r=conv.r,
        s=conv.s,
        padding=where(turns, conv.r - 1.0 - conv.padding, 0.0),
        groups=conv.groups,
        layout=conv.layout,
        dtype=conv.dtype,
    )


def _backward(op: Conv2d, machine: Machine, library: str) -> bool:
    return op.backward


#: What the formula leaves of the measured times is mostly not the shape's: in NeuSight's rows (@ 6945927d9afc) each of
#: 3,011 shapes has an excess that is alike on all four machines (rank correlation 0.98 where kernels are short),
#: between about 0.05 ms on each of them and 0.30 ms on V100, 0.43 on T4, 0.75 on P4 and 0.77 on P100. Where kernels are
#: short it is spread over all of that range and follows no size: no rank correlation with n, c, h or k is above 0.22,
#: and trees of all sizes and their remainders, fitted on half of 649 shapes, explain less than nothing of it on the
#: other half. It rises along the table in 77 of 91 pairs of equal n and c: like dispatch that grows in the course of a
#: run, from what a new process takes. Kernels that the formula times exactly would be off by 16.9, 11.8, 8.9 and 11.0 %
#: on P100, P4, T4 and V100 because of it, 12.1 % in the mean, with the best constant ``host`` that there is, and 11.9 %
#: with the dispatch of `spread_dispatch_s`; the shipped constants leave 13.6 % in the fitted half. With the excess that
#: the other three machines tell, they would leave about 7, 8, 6 and 6 %: where two machines run the same algorithm on a
#: shape, what is left then has nothing in common (correlation -0.19 to 0.17 without P100). Trees of all sizes, their
#: remainders and the times of the algorithms take 1 point of it on rows that they were not fitted on, 0.5 of the error
#: with the excess; 24 more constants for each machine take half as much. Channels that are no multiples of 4 or 8, a
#: residual surface over pixels, channels and filters, and less overlap of memory with products take 0.1 points or less
#: each, and are left out.
TERMS = (*gemm.PRODUCT_TERMS, ALIGNMENT, IM2COL, TRANSFORMS, LAYOUT, GATHERING)
#: channels of all 16-bit convolutions that were designed are multiples of this, or images'; of others, drawn at random,
#: five in NCHW with a stride are 0.8 to 1.7 times as slow as predicted, ln with a root mean square of 0.34 (H200, torch
#: 2.11.0, 2026-11-23), where others are 0.2 off
USUAL_CHANNELS, DEVIATION = 64.0, (0.15, 0.3, 0.3)


def _unusual(conv: Conv2d, machine: Machine, conditions: Conditions) -> Any:
    """Whether a 16-bit convolution on tensor cores has channels and strides that were hardly measured."""
    if machine.engine != "tensor" or conv.dtype not in ("fp16", "bf16"):
        return False
    ragged = (conv.groups == 1) & (conv.c > IMAGE_CHANNELS) & (conv.c % USUAL_CHANNELS != 0)
    return ragged & (conv.stride > 1) & (conv.layout == "nchw")


#: own records of an H200 of operators that were drawn at random (torch 2.11.0, cuDNN 9.19, 2026-11-27; all in view),
#: as ratios of the measured to the predicted time, with the root mean square of their ln. Ten convolutions in groups of
#: more than one channel: 0.6 to 1.9, 0.4. Seventeen of filters of several taps whose channels fill no step of 128 B on
#: tensor cores: 0.9 to 1.9, 0.35, nearly all above 1. Thirteen in fp32 with more than 3 x 3 taps, or with channels or
#: filters that are no whole vectors: 0.6 to 1.9, 0.4, one of them 4.9. Four of filters of one tap by channels in fp32:
#: 1.0, 1.0, 1.2 and 1.5, 0.2
GROUPED_DEVIATION, FEW_DEVIATION = (0.5, 0.4, 0.4), (0.6, 0.4, 0.3)
ODD_DEVIATION, ONE_TAP_DEVIATION = (0.4, 0.4, 0.4), (0.3, 0.3, 0.3)


def _grouped(conv: Conv2d, machine: Machine, conditions: Conditions) -> Any:
    """Whether groups have more than one channel."""
    return (conv.groups > 1) & (conv.groups < conv.c)


def _few_of_a_tap(conv: Conv2d, machine: Machine, conditions: Conditions) -> Any:
    """Whether the channels of a tap fill no step of the kernels of tensor cores from Hopper on."""
    if machine.engine != "tensor" or not _from_hopper(machine):
        return False
    few = (conv.c > IMAGE_CHANNELS) & (conv.c * dtype_bytes(conv.dtype) < STEP_BYTES)
    return few & (conv.groups == 1) & (conv.r * conv.s > 1)


def _odd_in_fp32(conv: Conv2d, machine: Machine, conditions: Conditions) -> Any:
    """Whether a convolution on the vector engine from Hopper on has many taps, or channels off whole vectors."""
    if machine.engine != "vector" or not _from_hopper(machine):
        return False
    vector = VECTOR_BYTES / dtype_bytes(conv.dtype)
    odd = (conv.c > IMAGE_CHANNELS) & ((conv.c % vector != 0) | (conv.k % vector != 0))
    return (odd | (conv.r > FITTED_TAPS) | (conv.s > FITTED_TAPS)) & (conv.groups == 1)


def _one_tap_in_fp32(conv: Conv2d, machine: Machine, conditions: Conditions) -> Any:
    """Whether filters of one tap read images by channels on the vector engine from Hopper on."""
    if machine.engine != "vector" or not _from_hopper(machine) or conv.layout != "nhwc":
        return False
    return (conv.r == 1) & (conv.s == 1) & (conv.groups == 1)


#: all rows in fp32 of machines before Hopper, 12,103, are filters of 3 x 3 at every pixel (NeuSight @ 6945927d9afc):
#: what others deviate by on the vector engine is assumed, as for sizes in 16 bits, with an open trace of a V100 in
#: view, where filters of 1 x 1 take up to 1.7 times what is predicted (pytorch/kineto @ 624ae15193b7)
FITTED_TAPS, TAPS_DEVIATION = 3.0, (0.15, 0.3, 0.3)


def _other_taps(conv: Conv2d, machine: Machine, conditions: Conditions) -> Any:
    """Whether a convolution on a vector engine before Hopper has other filters than the fitted ones."""
    if machine.engine != "vector" or _from_hopper(machine):
        return False
    fitted = (conv.r == FITTED_TAPS) & (conv.s == FITTED_TAPS) & (conv.stride == 1) & (conv.dilation == 1)
    return (fitted & (conv.groups == 1)) ^ True


#: MIOpen in fp32 on CDNA: where it has no kernel of its own for a convolution, it copies each image to columns and
#: multiplies them, image by image. Eight convolutions of 8 to 48 images on an MI300X take 8 to 60 us an image, 4 to 24
#: times the predicted time, ln 2.1 in the root mean square (nod-ai/iree-kernel-benchmark @ 744280984b91, in view). They
#: are those of 400 us and more, the slower ones of their table, so that less is taken. All libraries may call it but
#: those that are known to have kernels of their own
WITHOUT_MIOPEN, MIOPEN_IN_FP32 = ("own", "cuda", "hip", "ck", "triton", "iree"), (1.5, 1.5, 1.5)


def _is_cdna(hardware: Hardware) -> bool:
    return product_line(hardware) == "amd-hbm"


def _by_miopen(conv: Conv2d, machine: Machine, conditions: Conditions) -> Any:
    """Whether a convolution in fp32 may run image by image."""
    return conv.dtype == "fp32" and conditions.caller not in WITHOUT_MIOPEN


BY_MIOPEN = Doubt(ErrorSource.EXTRAPOLATION, _by_miopen, MIOPEN_IN_FP32, machines=_is_cdna)

#: what calls of NeuSight's convolutions take at least beside their kernels. The shortest kernels tell 34 to 62 us (81
#: fitted shapes that the formula gives less than 0.2 ms on each of P100, P4, T4 and V100); of all shapes, more have a
#: dispatch near the least than an even spread says, and less leaves a smaller error. The longest dispatch is fitted. 10
#: to 45 us leave the same mean error, within 0.1 points
LEAST_DISPATCH_S = 20e-6

FAMILY = Family(
    "conv2d", CONSTANTS, formula, TERMS, forward_only, least_dispatch_s=LEAST_DISPATCH_S,
    doubts=(
        Doubt(ErrorSource.EXTRAPOLATION, _unusual, DEVIATION),
        Doubt(ErrorSource.EXTRAPOLATION, _other_taps, TAPS_DEVIATION),
        Doubt(ErrorSource.EXTRAPOLATION, _either, CHOICE_DEVIATION),
        Doubt(ErrorSource.EXTRAPOLATION, _grouped, GROUPED_DEVIATION),
        Doubt(ErrorSource.EXTRAPOLATION, _few_of_a_tap, FEW_DEVIATION),
        Doubt(ErrorSource.EXTRAPOLATION, _odd_in_fp32, ODD_DEVIATION),
        Doubt(ErrorSource.EXTRAPOLATION, _one_tap_in_fp32, ONE_TAP_DEVIATION),
        BY_MIOPEN,
    ),
)  # fmt: skip
#: nothing is fitted; in an open trace of a V100 that trains ResNet-50 (pytorch/kineto @ 624ae15193b7) convolutions take
#: 1.23 times, their gradients 1.2 times what is predicted
BACKWARD = Family(
    "conv2d_backward",
    (Constant("slower", "", 1.05, 0.5, 4.0, 0.2, "time of a gradient over that of such a convolution"),),
    gradient,
    TERMS,
    _backward,
    doubts=(BY_MIOPEN,),
)
FAMILIES = (FAMILY, BACKWARD)
