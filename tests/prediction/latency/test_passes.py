"""Scans whose kernels are known of a library, and the tiles of radix sorts."""

import numpy as np
import pytest

import perfmodel as pm

#: keys of 4 B that a block of a radix sort ranks
TILE = 8064
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


def _sorted(keys: object, dtype: str = "fp32", machine: str = "b200") -> np.ndarray:
    op = pm.Sort(cols=keys, dtype=dtype)  # type: ignore[arg-type]
    return np.asarray(pm.predict(op, machine, library="cub", timing="kernel", cache="warm").predicted_time_s)


@pytest.mark.parametrize("machine", ["a100", "h100", "b200"])
def test_a_tile_of_keys_takes_one_sm_as_long_as_all_theirs_take_all_sms(machine: str) -> None:
    """A sort is bound by its ranking until memory binds it: in a pass each SM ranks 8064 keys at 1.29 clocks each."""
    chip = pm.hardware(machine)
    one, all_sms, more = _sorted(np.array([TILE, TILE * chip.sm_count, TILE * chip.sm_count + 1.0]), machine=machine)
    ranked_s = 4.0 * 1.29 * TILE / chip.clocks_hz["vector"]
    assert one > ranked_s
    assert all_sms < one + 0.5 * ranked_s
    assert more - all_sms == pytest.approx(ranked_s, rel=0.3)


def test_more_keys_are_sorted_no_faster_and_fewer_passes_not_slower() -> None:
    keys = np.geomspace(16, 2**28, 40).round()
    wide, narrow = _sorted(keys), _sorted(keys, "int8")
    assert (np.diff(wide) >= 0.0).all()
    assert (narrow < wide).all()
    assert wide == pytest.approx([float(_sorted(one)) for one in keys])
