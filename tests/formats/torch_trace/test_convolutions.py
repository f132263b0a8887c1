"""Convolutions of PyTorch and their gradients as operators of the model: FLOP and bytes by hand."""

import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfmodel.formats.torch_trace.call import parse_call
from perfmodel.formats.torch_trace.operators.aten import operator_of

BF16, FLOAT = "c10::BFloat16", "float"


def found(name, dims, types, values):
    texts = (json.dumps(part).encode() if part else b"" for part in (dims, (), types or [BF16] * len(dims), values))
    return operator_of(parse_call(name, list(texts)))


def mapped(name, dims, types=(), values=()):
    operator, reason = found(name, dims, types, values)
    assert operator is not None, reason
    return operator


def refused(name, dims, types=(), values=()):
    operator, reason = found(name, dims, types, values)
    assert operator is None
    return reason


CONV = [[2, 16, 28, 28], [32, 16, 3, 3]]


@pytest.mark.parametrize(
    ("name", "empty", "values"),
    [
        ("aten::convolution", 1, ["[2, 2]", "[1, 1]", "[1, 1]", "False", "[0, 0]", "1"]),
        ("aten::conv2d", 1, ["[2, 2]", "[1, 1]", "[1, 1]", "1"]),
        ("aten::cudnn_convolution", 0, ["[1, 1]", "[2, 2]", "[1, 1]", "1", "True", "False", "True"]),
        ("aten::miopen_convolution", 1, ["[1, 1]", "[2, 2]", "[1, 1]", "1", "False", "False"]),
    ],
)
def test_convolutions(name, empty, values):
    # stride 2, padding 1: (28 + 2 - 3) // 2 + 1 = 14 outputs each way; 2 n k p q c r s FLOP
    operator = mapped(name, [*CONV, *[[]] * (empty + len(values))], [BF16] * 2, ["", "", *[""] * empty, *values])
    assert (operator.stride, operator.padding, operator.p) == (2, 1, 14)
    assert operator.flop() == 2 * 2 * 32 * 14 * 14 * 16 * 9


def test_a_signal_is_an_image_of_one_row():
    # (1500 + 2 - 3) // 1 + 1 = 1500 outputs of 512 filters over 512 channels and 3 taps
    dims, values = [[4, 512, 1500], [512, 512, 3]], ["", "", "", "[1]", "[1]", "[1]", "False", "[0]", "1"]
    operator = mapped("aten::convolution", dims, values=values)
    assert (operator.p, operator.q) == (1, 1500)
    assert operator.flop() == 2 * 4 * 1500 * 512 * 512 * 3


def test_padding_that_differs_by_direction_is_part_of_the_image():
    # a filter of 1 x 7 leaves 17 x 17 pixels as many as they are
    dims, values = [[4, 64, 17, 17], [64, 64, 1, 7]], ["", "", "", "[1, 1]", "[0, 3]", "[1, 1]", "False", "[0, 0]", "1"]
    operator = mapped("aten::convolution", dims, values=values)
    assert (operator.padding, operator.p, operator.q) == (0, 17, 17)
    assert operator.flop() == 2 * 4 * 17 * 17 * 64 * 64 * 7


@pytest.mark.parametrize("signal", [False, True])
@pytest.mark.parametrize("beyond", [0, 1])
def test_a_transposed_convolution_is_the_gradient_of_the_one_that_leads_back(signal, beyond):
    # each of 32 x 32 pixels in 64 channels meets 4 x 4 taps of 16 filters in each of two groups
    rank, rows = (1, 1) if signal else (2, 32)
    dims = [[4, 64, *[32] * rank], [64, 16, *[4] * rank]]
    options = [str([2] * rank), str([1] * rank), str([1] * rank), "True", str([beyond] * rank), "2"]
    made = mapped("aten::convolution", dims, values=["", "", "", *options])
    assert (made.gradient, made.c, made.w, made.q) == ("input", 32, 64 + beyond + 2 * signal, 32)
    assert made.flop() == 2 * 4 * rows * 32 * 64 * 16 * 4**rank
    gradients = [[4, 32, *[64 + beyond] * rank], *dims]
    for asked, count in (("[True, True, False]", 2), ("[False, True, False]", 1), ("[True, False, False]", 1)):
        values = ["", "", "", "", *options, asked]
        assert mapped("aten::convolution_backward", gradients, values=values).flop() == count * made.flop()


GRADIENT = ["", "", "", "[0]", "[2, 2]", "[1, 1]", "[1, 1]", "False", "[0, 0]", "1"]
#: grad_output, input, weight of the convolution above
MADE_FROM = [[2, 32, 14, 14], *CONV]


@pytest.mark.parametrize(("asked", "count"), [("[True, True, False]", 2), ("[False, True, True]", 1)])
def test_the_gradients_of_a_convolution_have_its_products_each(asked, count):
    # each gradient has the products and the tensors of the convolution itself; that of the bias is left out
    operator = mapped("aten::convolution_backward", MADE_FROM, values=[*GRADIENT, asked])
    forward = mapped(
        "aten::convolution", CONV, values=["", "", "", "[2, 2]", "[1, 1]", "[1, 1]", "False", "[0, 0]", "1"]
    )
    assert (operator.backward, operator.gradient) == (True, "both" if count == 2 else "weight")
    assert operator.flop() == count * forward.flop() == count * 2 * 2 * 32 * 14 * 14 * 16 * 9
    assert operator.work().bytes == count * forward.work().bytes


def test_gradients_that_nothing_says_are_asked_for_are_not_modelled():
    name = "aten::convolution_backward"
    assert "which gradients" in refused(name, MADE_FROM, values=[*GRADIENT, "[False, False, True]"])
    assert "no values" in refused(name, MADE_FROM)


@pytest.mark.parametrize(
    ("x", "made", "weight", "stride"),
    [
        ([2, 16, 28, 28], [2, 32, 14, 14], [32, 16, 3, 3], 2),
        ([2, 16, 28, 28], [2, 32, 28, 28], [32, 16, 1, 1], 1),
        ([2, 16, 28, 28], [2, 32, 14, 14], [32, 16, 1, 1], 2),
        ([2, 3, 224, 224], [2, 64, 112, 112], [64, 3, 7, 7], 2),
        ([2, 16, 28, 28], [2, 16, 28, 28], [16, 1, 3, 3], 1),
    ],
)
def test_three_sizes_say_what_a_gradient_of_2021_computes(x, made, weight, stride):
    # 2 n k p q (c / groups) r s, with p and q as they stand in grad_output
    operator = mapped("aten::cudnn_convolution_backward_weight", [x, made, weight], [FLOAT] * 3)
    assert operator.stride == stride
    assert operator.flop() == 2 * made[0] * made[1] * made[2] * made[3] * weight[1] * weight[2] * weight[3]


@pytest.mark.parametrize("patch", [16, 32])
def test_the_patches_of_a_vision_transformer_are_a_convolution(patch):
    # an image of 224 by 224 in patches: 2 n k p q c r s; a smaller stride leads to the same sizes and the same work
    out = 224 // patch
    dims = [[2, 3, 224, 224], [2, 768, out, out], [768, 3, patch, patch]]
    operator = mapped("aten::cudnn_convolution_backward_weight", dims, [FLOAT] * 3)
    assert operator.flop() == 2 * 2 * 768 * out * out * 3 * patch * patch


def test_absurd_sizes_are_refused_at_once():
    huge = 2**52
    dims = [[1, 1, huge, huge], [1, 1, huge - 1, huge - 1], [1, 1, 3, 3]]
    assert "stride and padding" in refused("aten::cudnn_convolution_backward_input", dims, [FLOAT] * 3)


@given(
    size=st.integers(1, 40),
    taps=st.integers(1, 7),
    stride=st.integers(1, 4),
    padding=st.integers(0, 3),
)
def test_the_sizes_of_any_convolution_lead_back_to_its_work(size, taps, stride, padding):
    padding = min(padding, taps // 2)
    out = (size + 2 * padding - taps) // stride + 1
    if out < 1:
        return
    dims = [[1, 2, size, size], [1, 4, out, out], [4, 2, taps, taps]]
    operator = mapped("aten::cudnn_convolution_backward_input", dims, [FLOAT] * 3)
    assert operator.flop() == 2 * 4 * out * out * 2 * taps * taps


def test_two_sizes_do_not():
    said = refused("aten::cudnn_convolution_backward_input", [[], [2, 32, 14, 14], [32, 16, 3, 3]], ["", FLOAT, FLOAT])
    assert "argument 0" in said
    strange = [[2, 16, 28, 28], [2, 32, 5, 14], [32, 16, 3, 3]]
    assert "stride and padding" in refused("aten::cudnn_convolution_backward_input", strange, [FLOAT] * 3)


def test_convolutions_that_are_not_modelled():
    values = ["", "", "", "[2, 1]", "[1, 1]", "[1, 1]", "False", "[0, 0]", "1"]
    # two strides of a film
    video = [[1, 3, 16, 32, 32], [16, 3, 3, 3, 3]]
    assert "does not say the stride" in refused("aten::convolution", video, values=values)
    unsaid = [*values[:3], "[2, 2]", "[]", *values[5:]]
    assert "does not say the padding" in refused("aten::convolution", CONV, values=unsaid)
    assert "no values" in refused("aten::cudnn_convolution", CONV)
    # a filter larger than the image: the operator itself refuses
    large = [[1, 1, 2, 2], [1, 1, 9, 9]]
    assert "fit no conv2d" in refused("aten::conv2d", large, values=["", "", "", "[1, 1]", "[0, 0]", "[1, 1]", "1"])


FILM = [2, 3, 8, 56, 56]


@pytest.mark.parametrize(
    ("weight", "stride", "padding"),
    [
        ([64, 3, 1, 7, 7], (1, 2, 2), (0, 3, 3)),  # each picture by itself
        ([64, 3, 1, 3, 3], (2, 1, 1), (0, 1, 1)),  # every second picture
        ([64, 3, 3, 1, 1], (1, 1, 1), (0, 0, 0)),  # over time
        ([64, 3, 2, 14, 14], (2, 14, 14), (0, 0, 0)),  # a vision transformer's patches of films
    ],
)
def test_films_whose_filters_do_not_overlap_in_both_are_images(weight, stride, padding):
    numbers = [str(list(stride)), str(list(padding)), "[1, 1, 1]", "False", "[0, 0, 0]", "1"]
    operator = mapped("aten::convolution", [FILM, weight], values=["", "", "", *numbers])
    outputs = [(size + 2 * own - taps) // step + 1
               for size, own, taps, step in zip(FILM[2:], padding, weight[2:], stride, strict=True)]  # fmt: skip
    assert operator.flop() == 2 * FILM[0] * math.prod(outputs) * math.prod(weight)
    skipped = stride[0] if weight[2] == 1 else 1  # pictures that no filter touches are not read
    read = math.prod(FILM) / skipped + math.prod(weight)
    assert operator.work().bytes == 2 * (read + FILM[0] * weight[0] * math.prod(outputs))
    gradient = ["", "", "", "", *numbers, "[True, True, False]"]
    both = mapped("aten::convolution_backward", [[*FILM[:1], weight[0], *outputs], FILM, weight], values=gradient)
    assert both.flop() == 2 * operator.flop()


@pytest.mark.parametrize(
    ("stride", "padding", "groups"), [((1, 1, 1), (1, 1, 1), 1), ((2, 2, 2), (1, 1, 1), 1), ((1, 2, 2), (0, 1, 1), 3)]
)
def test_films_whose_filters_overlap_in_both_are_convolutions_in_three_directions(stride, padding, groups):
    weight = [64 * groups, 3 // groups, 3, 3, 3]
    numbers = [str(list(stride)), str(list(padding)), "[1, 1, 1]", "False", "[0, 0, 0]", str(groups)]
    operator = mapped("aten::convolution", [FILM, weight], values=["", "", "", *numbers])
    outputs = [(size + 2 * own - 3) // step + 1 for size, own, step in zip(FILM[2:], padding, stride, strict=True)]
    assert operator.op == "conv3d"
    assert (operator.o, operator.p, operator.q) == tuple(outputs)
    assert operator.flop() == 2 * FILM[0] * math.prod(outputs) * math.prod(weight)
    # every element of the film is met, and each tensor crosses memory once
    elements = math.prod(FILM) + math.prod(weight) + FILM[0] * weight[0] * math.prod(outputs)
    assert operator.work().bytes == 2 * elements
    made = [FILM[0], weight[0], *outputs]
    gradient = ["", "", "", "", *numbers, "[False, True, False]"]
    weights = mapped("aten::convolution_backward", [made, FILM, weight], values=gradient)
    assert (weights.gradient, weights.flop()) == ("weight", operator.flop())
    assert weights.work().bytes == 2 * elements


def test_a_transposed_convolution_of_a_film_has_the_products_of_the_convolution_back():
    # 2 x 2 x 2 windows side by side: each input makes 8 outputs of 32 channels from 64
    values = ["", "", "", "[2, 2, 2]", "[0, 0, 0]", "[1, 1, 1]", "True", "[0, 0, 0]", "1"]
    operator = mapped("aten::convolution", [[1, 64, 4, 8, 8], [64, 32, 2, 2, 2]], values=values)
    assert (operator.op, operator.gradient, operator.d, operator.h) == ("conv3d", "input", 8, 16)
    assert operator.flop() == 2 * 4 * 8 * 8 * 64 * 32 * 8
    assert operator.work().bytes == 2 * (64 * 4 * 8 * 8 + 64 * 32 * 8 + 32 * 8 * 16 * 16)


@pytest.mark.parametrize(
    ("stride", "dilation", "outputs"), [("[2, 1]", "[1, 1]", (14, 28)), ("[1, 1]", "[2, 1]", (26, 28))]
)
def test_an_image_whose_directions_differ_is_a_film_of_one_picture(stride, dilation, outputs):
    values = ["", "", "", stride, "[1, 1]", dilation, "False", "[0, 0]", "1"]
    operator = mapped("aten::convolution", CONV, values=values)
    assert (operator.op, operator.d, operator.o, operator.p, operator.q) == ("conv3d", 1, 1, *outputs)
    assert operator.flop() == 2 * 2 * 32 * math.prod(outputs) * 16 * 9


def test_films_and_filters_of_different_dimensions_are_refused():
    values = ["", "", "", "[1, 1, 1]", "[1, 1, 1]", "[1, 1, 1]", "False", "[0, 0, 0]", "1"]
    assert "different dimensions" in refused("aten::convolution", [FILM, [64, 3, 3, 3]], values=values)
