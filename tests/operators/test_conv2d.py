"""Convolutions: counts by hand and against torch, and shapes that have no output."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

import perfmodel as pm
from perfmodel.errors import UsageError

SMALL: dict[str, Any] = {"n": 1, "c": 2, "h": 4, "w": 5, "k": 3, "r": 3, "s": 3, "padding": 1}


def test_counts_by_hand() -> None:
    # the padding keeps 4 x 5: 2 * 3 filters * 20 places * 2 channels * 9 taps
    op = pm.Conv2d(**SMALL)
    work = op.work()
    assert (op.p, op.q, work.flop) == (4, 5, 2160)
    # x 40 and the weights 3 * 2 * 9 = 54 elements of 4 B, y 60
    assert (work.bytes_read, work.bytes_written) == (4 * 94, 4 * 60)


def test_im2col_writes_and_reads_the_unfolded_matrix() -> None:
    direct, unfolded = pm.Conv2d(**SMALL).work(), pm.Conv2d(**SMALL, algorithm="im2col").work()
    more = 4 * (2 * 9) * (4 * 5)  # c r s rows of p q places
    assert (unfolded.bytes_read - direct.bytes_read, unfolded.bytes_written - direct.bytes_written) == (more, more)
    assert unfolded.flop == direct.flop


def test_a_one_by_one_filter_is_a_matrix_product() -> None:
    conv = pm.Conv2d(n=2, c=64, h=7, w=9, k=32, r=1, s=1, dtype="fp16").work()
    gemm = pm.Gemm(m=2 * 7 * 9, n=32, k=64, dtype="fp16").work()
    assert (conv.flop, conv.bytes_read, conv.bytes_written) == (gemm.flop, gemm.bytes_read, gemm.bytes_written)


def test_a_stride_above_the_filter_skips_rows_and_columns() -> None:
    # places 0, 2 and 4 of 5 in both directions: 9 of 25 elements are read
    op = pm.Conv2d(n=1, c=1, h=5, w=5, k=1, r=1, s=1, stride=2)
    assert (op.p, op.q) == (3, 3)
    assert op.work().bytes_read == 4 * (9 + 1)


def test_winograd_saves_three_quarters_of_the_products_at_most() -> None:
    op = pm.Conv2d(**SMALL)
    assert op.least_flop() == op.flop() / 4  # 6 x 6 products in place of 16 x 9
    for other in ({"stride": 2}, {"dilation": 2}, {"r": 1}):
        op = pm.Conv2d(**{**SMALL, "h": 9, "w": 9, **other})
        assert op.least_flop() == op.flop()


@pytest.mark.parametrize(
    "more",
    [
        {},
        {"padding": 1},
        {"stride": 2, "padding": 3},
        {"dilation": 2},
        {"groups": 2},
        {"groups": 4, "stride": 3, "padding": 2, "dilation": 2},
    ],
)
def test_flop_and_shape_agree_with_torch(more: dict[str, int]) -> None:
    torch = pytest.importorskip("torch")
    from torch.utils.flop_counter import FlopCounterMode

    op = pm.Conv2d(n=2, c=8, h=17, w=13, k=12, r=3, s=5, **more)
    x = torch.empty(2, 8, 17, 13, device="meta")
    weight = torch.empty(12, 8 // int(op.groups), 3, 5, device="meta")
    with FlopCounterMode(display=False) as counter:
        y = torch.nn.functional.conv2d(x, weight, **more)
    assert tuple(y.shape) == (2, 12, op.p, op.q)
    assert counter.get_total_flops() == op.flop()


@pytest.mark.parametrize(
    ("wrong", "part"),
    [
        ({"h": 2, "padding": 0}, r"output is empty.*does not fit 2.*\(h, r\)"),
        ({"w": 2, "padding": 0}, r"output is empty.*\(w, s\)"),
        ({"dilation": 9}, "output is empty"),
        ({"groups": 2}, "k=3 is not a multiple of groups=2"),
        ({"groups": 3}, "c=2 is not a multiple of groups=3"),
        ({"stride": 0}, "stride=0 is below 1"),
        ({"padding": -1}, "padding=-1 is below 0"),
        ({"algorithm": "winograd"}, "unknown algorithm 'winograd'"),
        ({"h": np.array([4, 1]), "padding": 0}, "output is empty"),
    ],
)
def test_impossible_convolutions_are_refused(wrong: dict[str, Any], part: str) -> None:
    with pytest.raises(UsageError, match=f"conv2d: .*{part}"):
        pm.Conv2d(**{**SMALL, **wrong})


sizes = st.integers(1, 40)


@given(st.lists(st.tuples(sizes, sizes, sizes, st.integers(1, 3)), min_size=1, max_size=6))
def test_scalar_equals_array(rows: list[tuple[int, int, int, int]]) -> None:
    n, c, h, stride = (np.array(axis) for axis in zip(*rows, strict=True))
    fixed: dict[str, Any] = {"w": 12, "k": 6, "r": 3, "s": 3, "padding": 1, "algorithm": "im2col"}
    together = pm.Conv2d(n=n, c=c, h=h, stride=stride, **fixed)
    for index, (n1, c1, h1, stride1) in enumerate(rows):
        alone = pm.Conv2d(n=n1, c=c1, h=h1, stride=stride1, **fixed)
        for count in ("flop", "bytes_read", "bytes_written"):
            assert getattr(together.work(), count)[index] == getattr(alone.work(), count)
        assert np.asarray(together.least_flop())[index] == alone.least_flop()


def touched(length: int, taps: int, stride: int, padding: int, dilation: int) -> int:
    """Rows of an image that some tap of some window meets, one after another."""
    windows = (length + 2 * padding - dilation * (taps - 1) - 1) // stride + 1
    rows = {stride * i + dilation * j - padding for i in range(windows) for j in range(taps)}
    return len(rows & set(range(length)))


def test_stride_and_dilation_of_two_read_every_second_row() -> None:
    op = pm.Conv2d(n=1, c=1, h=21, w=21, k=1, r=3, s=3, stride=2, dilation=2)
    assert op.tensors()[0].shape == (1, 1, 11, 11)  # rows 0, 2, ..., 20


@given(*(st.integers(1, 24) for _ in "hw"), *(st.integers(1, 6) for _ in "rs"), *(st.integers(1, 6) for _ in "sd"),
       st.integers(0, 8))  # fmt: skip
def test_the_pixels_that_are_read_are_those_that_a_tap_meets(
    h: int, w: int, r: int, s: int, stride: int, dilation: int, padding: int
) -> None:
    assume(dilation * (r - 1) < h + 2 * padding and dilation * (s - 1) < w + 2 * padding)
    wanted = [touched(length, taps, stride, padding, dilation) for length, taps in ((h, r), (w, s))]
    more: dict[str, Any] = {"n": 1, "c": 1, "k": 1, "padding": padding}
    alone = pm.Conv2d(h=h, w=w, r=r, s=s, stride=stride, dilation=dilation, **more)
    assert list(alone.tensors()[0].shape[2:]) == wanted
    # beside another convolution, in arrays
    together = pm.Conv2d(
        h=np.array([h, 40]), w=np.array([w, 40]), r=np.array([r, 3]), s=np.array([s, 3]),
        stride=np.array([stride, 2]), dilation=np.array([dilation, 2]), **more,
    )  # fmt: skip
    assert [np.asarray(size)[0] for size in together.tensors()[0].shape[2:]] == wanted


def test_huge_filters_take_no_loop_over_their_taps() -> None:
    op = pm.Conv2d(n=1, c=1, h=10**9, w=1, k=1, r=10**8, s=1, dilation=3)
    assert op.work().bytes_read == pytest.approx(4 * (10**9 + 10**8))


@pytest.mark.parametrize("dtype", ["bf16", "tf32", "fp64", "int8"])
def test_winograd_exists_in_fp32_and_fp16_only(dtype: str) -> None:
    op = pm.Conv2d(**SMALL, dtype=dtype)
    assert op.least_flop() == op.flop()
    assert pm.Conv2d(**SMALL, dtype="fp16").least_flop() == op.flop() / 4
