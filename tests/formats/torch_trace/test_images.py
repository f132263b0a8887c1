"""Pools, interpolation, unfolding, Fourier transforms and look-ups along any axis, each with its bytes by hand."""

from __future__ import annotations

import math
import random

import pytest

from perfmodel.formats.torch_trace.call import Call, shape_of
from perfmodel.formats.torch_trace.operators.aten import MAPPINGS, operator_of

FLOAT, LONG, COMPLEX = "float", "long int", "c10::complex<float>"
#: two films of 3 channels, 8 pictures of 6 x 10 pixels
FILM = [2, 3, 8, 6, 10]


def mapped(name, dims, values, types=()):
    shapes = tuple(
        shape_of(sizes, None, kind) if sizes else None
        for sizes, kind in zip(dims, types or [FLOAT] * len(dims), strict=True)
    )
    operator, reason = operator_of(Call(f"aten::{name}", shapes, tuple(values), has_shapes=True, has_values=True))
    assert operator is not None, reason
    return operator


def moved(operator):
    work = operator.work()
    return work.bytes_read, work.bytes_written


def test_a_pool_of_films_reads_each_element_once():
    operator = mapped("max_pool3d_with_indices", [FILM], ["", "[2, 2, 2]", "[]", "[0, 0, 0]", "[1, 1, 1]", "False"])
    outputs = 2 * 3 * 4 * 3 * 5
    assert operator.flop() == outputs * 7
    assert moved(operator) == (4 * math.prod(FILM), (4 + 8) * outputs)
    made = [2, 3, 4, 3, 5]
    gradient = mapped("max_pool3d_with_indices_backward", [made, FILM], ["", "", "[2, 2, 2]", "", "", "", "", ""])
    # zeros, and then the sums
    assert moved(gradient) == ((4 + 8) * outputs, 2 * 4 * math.prod(FILM))


def test_windows_that_overlap_by_direction_have_the_outputs_of_pytorch():
    # windows of 3 x 3 at every second pixel of a row and every pixel of a column: (6 + 2 - 3) // 1 + 1 = 6 rows
    image = [2, 3, 6, 10]
    operator = mapped("avg_pool2d", [image], ["", "[3, 3]", "[1, 2]", "[1, 0]", "False", "True", ""])
    assert (operator.op, operator.o, operator.p, operator.q) == ("pool3d", 1, 6, 4)
    assert operator.flop() == 2 * 3 * 6 * 4 * 9
    made = [2, 3, 6, 4]
    values = ["", "", "[3, 3]", "[1, 2]", "[1, 0]", "False", "True", ""]
    gradient = mapped("avg_pool2d_backward", [made, image], values)
    assert (gradient.backward, gradient.p, gradient.q) == (True, 6, 4)
    assert moved(gradient) == (4 * 2 * 3 * 6 * 4, 4 * math.prod(image))


@pytest.mark.parametrize("size", ["[2, 2, 2]", "[3, 4, 3]"])
@pytest.mark.parametrize("kind", ["_adaptive_avg_pool3d", "adaptive_max_pool3d"])
def test_an_adaptive_pool_has_the_outputs_that_are_asked_for(kind, size):
    operator = mapped(kind, [FILM], ["", size])
    outputs = 2 * 3 * math.prod(int(part) for part in size.strip("[]").split(","))
    indices = 8 * outputs if "max" in kind else 0
    assert moved(operator) == (4 * math.prod(FILM), 4 * outputs + indices)


def test_the_gradient_of_sizes_that_do_not_divide_reads_and_writes_each_pixel():
    # 33 x 33 pixels from 17 x 17
    values = ["", "[33, 33]", "[2, 3, 17, 17]", "False", "", ""]
    operator = mapped("upsample_bilinear2d_backward", [[2, 3, 33, 33]], values)
    assert operator.flop() == 2 * 4 * 2 * 3 * 33 * 33
    assert moved(operator) == (4 * 2 * 3 * 33 * 33, 2 * 4 * 2 * 3 * 17 * 17)
    assert mapped("upsample_trilinear3d_backward", [[1, 2, 5, 5, 5]], ["", "[5, 5, 5]", "[1, 2, 3, 3, 3]"]).taps == 8


def test_samples_of_a_grid_by_hand():
    image, grid = [2, 16, 9, 9], [2, 5, 7, 2]
    operator = mapped("grid_sampler_2d", [image, grid], ["", "", "0", "0", "False"])
    outputs = 2 * 16 * 5 * 7
    # 4 multiply-adds an output; 35 outputs may meet all 81 pixels
    assert operator.flop() == 8 * outputs
    assert moved(operator) == (4 * (math.prod(image) + math.prod(grid)), 4 * outputs)
    made = [2, 16, 5, 7]
    gradient = mapped("grid_sampler_2d_backward", [made, image, grid], ["", "", "", "0", "0", "False", ""])
    # products with the gradient of the image, and with those of both places
    assert gradient.flop() == 3 * 8 * outputs
    assert moved(gradient) == (4 * (outputs + math.prod(image) + math.prod(grid)),
                               4 * (2 * math.prod(image) + math.prod(grid)))  # fmt: skip


def test_windows_side_by_side_are_written_more_often_than_pixels_are_read():
    operator = mapped("im2col", [[2, 3, 8, 8]], ["", "[3, 3]", "[1, 1]", "[1, 1]", "[1, 1]"])
    assert moved(operator) == (4 * 2 * 3 * 64, 4 * 2 * 3 * 9 * 64)
    back = mapped("col2im", [[2, 27, 64]], ["", "[8, 8]", "[3, 3]", "[1, 1]", "[1, 1]", "[1, 1]"])
    assert moved(back) == (4 * 2 * 3 * 9 * 64, 4 * 2 * 3 * 64)


def test_fourier_transforms_by_hand():
    # 6 transforms of 32 x 64 real numbers: 33 complex ones a row, of 8 B
    real = mapped("_fft_r2c", [[2, 3, 32, 64]], ["", "[2, 3]", "0", "True"])
    assert (real.batch, real.n, real.others, real.axes) == (6, 64, 32, 2)
    assert real.flop() == 2.5 * 6 * 2048 * 11
    least = real.work()
    assert least.bytes_read - least.repeated_bytes / 2 == 4 * 6 * 2048
    assert least.bytes_written - least.repeated_bytes / 2 == 8 * 6 * 32 * 33
    back = mapped("_fft_c2r", [[2, 3, 32, 33]], ["", "[2, 3]", "0", "64"], [COMPLEX])
    assert (back.kind, back.flop()) == ("inverse_real", real.flop())
    both = mapped("_fft_c2c", [[10, 1024]], ["", "[1]", "0", "True"], [COMPLEX])
    assert (both.flop(), moved(both)) == (5 * 10 * 1024 * 10, (8 * 10240, 8 * 10240))


def test_products_and_sums_of_complex_numbers_have_both_parts():
    # 8 FLOP a product; the larger operand and the result with 8 B a number, the smaller one twice
    operator = mapped("bmm", [[6, 4, 32], [6, 32, 64]], ["", ""], [COMPLEX] * 2)
    assert operator.flop() == 8 * 6 * 4 * 32 * 64
    assert moved(operator) == (8 * 6 * (2 * 4 * 32 + 32 * 64), 8 * 6 * 4 * 64)
    total = mapped("sum", [[6, 64]], ["", "[1]", "False", ""], [COMPLEX])
    assert (total.rows, total.cols) == (12, 64)
    size = mapped("abs", [[6, 64]], [""], [COMPLEX])
    assert moved(size) == (8 * 6 * 64, 4 * 6 * 64)
    assert moved(mapped("abs", [[6, 64]], [""])) == (4 * 6 * 64, 4 * 6 * 64)


def test_distances_are_products():
    plain = mapped("_cdist_forward", [[8, 128, 64], [8, 256, 64]], ["", "", "1.0", ""])
    assert (plain.flop(), plain.engine) == (2 * 8 * 128 * 256 * 64, "vector")
    squared = mapped("_euclidean_dist", [[128, 64], [256, 64]], ["", ""])
    assert (squared.flop(), squared.engine) == (2 * 128 * 256 * 66, "auto")
    gradient = mapped("_cdist_backward", [[128, 256], [128, 64], [256, 64], [128, 256]], ["", "", "", "1.0", ""])
    assert gradient.flop() == 2 * 128 * 256 * 64


@pytest.mark.parametrize(("name", "values"), [("median", ["", "1"]), ("kthvalue", ["", "3", "1"])])
def test_an_order_statistic_is_a_selection_in_each_row(name, values):
    operator = mapped(name, [[128, 64]], values)
    assert (operator.op, operator.rows, operator.cols, operator.k) == ("topk", 128, 64, 1)
    assert mapped("median", [[128, 64]], [""]).cols == 128 * 64


def test_unpooling_does_what_the_gradient_of_the_pool_does():
    operator = mapped("max_unpool2d", [[2, 3, 4, 5], [2, 3, 4, 5]], ["", "", "[8, 10]"], [FLOAT, LONG])
    outputs = 2 * 3 * 20
    assert moved(operator) == ((4 + 8) * outputs, 2 * 4 * 4 * outputs)


def test_an_adaptive_pool_of_fewer_elements_reads_them_once():
    operator = mapped("_adaptive_avg_pool2d", [[2, 3, 4, 4]], ["", "[7, 7]"])
    assert moved(operator) == (4 * 2 * 3 * 16, 4 * 2 * 3 * 49)


def test_a_batch_of_products_that_are_added_up_is_one_of_a_longer_sum():
    operator = mapped("addbmm", [[4, 6], [10, 4, 5], [10, 5, 6]], ["", "", "", "1", "1"])
    assert operator.flop() == 10 * 2 * 4 * 5 * 6 + 4 * 6


@pytest.mark.waiting
def test_arguments_of_any_kind_have_an_operator_or_a_reason():
    """Traces may be damaged, or of releases whose operators have other arguments."""
    numbers = random.Random(3)
    types = [FLOAT, "c10::Half", LONG, "bool", COMPLEX, "weird", ""]
    texts = ["", "1", "0", "-1", "[1]", "[0]", "[2, 2]", "[3, 3, 3]", "[0, 0]", "[1, 1]", "True", "[-2, -1]", "x", "[]"]

    def shape():
        sizes = [numbers.choice([0, 1, 2, 3, 4, 8, 33]) for _ in range(numbers.randint(1, 5))]
        return shape_of(sizes, None, numbers.choice(types)) if numbers.random() > 0.2 else None

    def argument():
        listed = tuple(one for one in (shape() for _ in range(3)) if one is not None)
        return shape() if numbers.random() < 0.75 else listed or None

    modelled = 0
    for name in [*MAPPINGS] * 40:
        count = numbers.randint(0, 9)
        told = tuple(numbers.choice(texts) for _ in range(count))
        call = Call(name, tuple(argument() for _ in range(count)), told, has_shapes=True, has_values=True)
        operator, reason = operator_of(call)
        assert (operator is None) is bool(reason)
        modelled += operator is not None and float(operator.work().bytes) >= 0
    assert modelled > 1000
