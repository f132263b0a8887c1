"""Fourier transforms: FLOP and traffic by hand."""

from __future__ import annotations

import numpy as np
import pytest

import perfmodel as pm


def test_counts_by_hand() -> None:
    op = pm.Fft(batch=3, n=1024)
    assert op.flop() == 5 * 3 * 1024 * 10
    # complex numbers of 8 B, read once and written once
    assert (op.work().bytes_read, op.work().bytes_written) == (3 * 1024 * 8, 3 * 1024 * 8)
    real = pm.Fft(batch=3, n=1024, kind="real", dtype="fp64")
    assert real.flop() == op.flop() / 2
    assert (real.work().bytes_read, real.work().bytes_written) == (3 * 1024 * 8, 3 * 513 * 16)
    back = pm.Fft(batch=3, n=1024, kind="inverse_real", dtype="fp64")
    assert (back.work().bytes_read, back.work().bytes_written) == (3 * 513 * 16, 3 * 1024 * 8)


def test_axes_add_up_as_one_transform_of_all_points() -> None:
    # log2 of a product is the sum of the logarithms: rows, then columns
    whole = pm.Fft(batch=2, n=64, others=32)
    rows, columns = pm.Fft(batch=2 * 32, n=64), pm.Fft(batch=2 * 64, n=32)
    assert whole.flop() == rows.flop() + columns.flop()
    assert whole.axes == whole.kernels() == 2
    # the points cross memory once more between both kernels, which no bound counts
    assert whole.work().bytes == 2 * rows.work().bytes
    assert whole.work().least_bytes == rows.work().bytes


def test_a_long_axis_takes_several_kernels() -> None:
    kernels = [pm.Fft(n=2**power).kernels() for power in (1, 13, 14, 26, 27)]
    assert kernels == [1, 1, 2, 2, 3]
    short, long = (pm.predict(pm.Fft(batch=2**24 // n, n=n), "h100") for n in (2**12, 2**16))
    assert float(long.predicted_time_s) > 1.3 * float(short.predicted_time_s)


def test_arrays_are_their_elements() -> None:
    sizes = np.array([1, 5, 8, 4096])
    together = pm.Fft(n=sizes, others=sizes)
    for index, size in enumerate(sizes):
        alone = pm.Fft(n=int(size), others=int(size))
        assert (together.flop()[index], together.work().bytes[index]) == pytest.approx(
            (alone.flop(), alone.work().bytes)
        )
