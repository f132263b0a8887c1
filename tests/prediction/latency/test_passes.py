"""Scans whose kernels are known of a library."""

import numpy as np
import pytest

import perfmodel as pm

#: columns up to which FlagGems scans a row in one block, and the first beyond
SHORT, LONG = 16384, 16385


def _time(library: str, rows: int, cols: object, machine: str) -> np.ndarray:
    op = pm.Scan(rows=rows, cols=cols, dtype="fp16")  # type: ignore[arg-type]
    return np.asarray(pm.predict(op, machine, library=library, timing="kernel", cache="cold").predicted_time_s)


@pytest.mark.parametrize("machine", ["a100", "h20", "mi300x"])
def test_long_rows_of_flaggems_are_read_once_more(machine: str) -> None:
    """x is read by the kernel before: n s bytes at no more than the bandwidth, and the starts of two kernels."""
    short, long = _time("flaggems", 16384, np.array([SHORT, LONG]), machine)
    bytes_of_x = 2.0 * 16384 * LONG
    assert long - short > bytes_of_x / pm.hardware(machine).main_memory.bandwidth_bytes_per_s
    assert long - short < 0.75 * short


@pytest.mark.parametrize("cols", [4096, SHORT])
def test_short_rows_of_flaggems_have_no_flags_to_reset(cols: int) -> None:
    """A row of one block is as fast as by look-back but for the kernel that resets the flags."""
    flaggems, others = (_time(library, 4096, cols, "a100") for library in ("flaggems", "nonsense"))
    assert 0.9 * others < flaggems < others


def test_scans_of_flaggems_by_arrays_are_those_by_numbers() -> None:
    cols = np.array([1.0, 1024.0, SHORT, LONG, 1e6])
    alone = [float(_time("flaggems", 64, one, "h100")) for one in cols]
    assert _time("flaggems", 64, cols, "h100") == pytest.approx(alone)
