"""Softmax: worked examples of the steps and passes, limits, and agreement with measurements."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfmodel.accuracy.fit import Group, fit, log_ratio
from perfmodel.core.hardware import Kernels
from perfmodel.hardware_catalog import hardware, load_all
from perfmodel.operators.cross_entropy import CrossEntropy
from perfmodel.operators.softmax import Softmax
from perfmodel.prediction.ceilings import resolve_peak
from perfmodel.prediction.conditions import Conditions
from perfmodel.prediction.latency.family import Values
from perfmodel.prediction.latency.machine import Machine
from perfmodel.prediction.latency.softmax import FAMILY, block_threads, steps
from perfmodel.prediction.predict import predict
from perfmodel.records.measurements import read_measurements

#: 100 SMs at 1 GHz, 1 TB/s, L2 of 10 MB
ROUND = Machine(100.0, 1e9, 1e13, "vector", "fp32", 1e13, 1e12, 1e7, np.inf)
VALUES = {
    "eta": 0.8, "launch": 2e-6, "feed": 0.5, "fill": 0.8, "warp": 0.25, "step": 2048.0, "lane": 1e-7, "thrash": 0.5,
    "host": 40e-6, "hidden": 20e-6,
}  # fmt: skip
COLD, WARM = Conditions(version="2.1"), Conditions(cache="warm", version="2.1")
EVENT = Conditions(timing="event", cache="warm", library="torch", version="2.1")
#: since PyTorch 2.7
NOW = Conditions(library="torch")
DEFAULT: Values = {constant.name: constant.default for constant in FAMILY.all_constants}
sizes = st.tuples(st.integers(1, 10**6), st.integers(1, 10**5))


def test_a_row_in_a_warp_is_padded_by_hand() -> None:
    # 1e6 rows of 513 columns, padded to 1024: 1e4 rows an SM x (1024 + 60) x 0.25 cycles at 1 GHz = 2.71 ms
    got = FAMILY.formula(Softmax(rows=10**6, cols=513), ROUND, VALUES, COLD)
    assert got.alone["math"] == pytest.approx(2.71e-3)
    # read once, written once: 4.104 GB at 0.8 TB/s
    assert got.adds["hbm"] == pytest.approx(5.13e-3)
    assert got.time_s == pytest.approx((5.13**6 + 2.71**6) ** (1 / 6) * 1e-3 + 2e-6)


def test_the_threads_of_a_block() -> None:
    # half of cols / 4 vectors: 1028 / 8 = 128.5, 1032 / 8 = 129, 2055 / 8 = 256.9, 2056 / 8 = 257; 512 at most
    cols = np.array([1028.0, 1032.0, 2055.0, 2056.0, 4096.0, 1e5])
    assert block_threads(cols, 4.0).tolist() == [128, 256, 256, 512, 512, 512]
    # of 8 elements of bf16 each: 2056 / 16 = 128.5
    assert block_threads(np.array([2056.0]), 8.0).tolist() == [128]


def test_the_steps_along_a_row() -> None:
    # 256 threads, 1024 elements in a step over vectors, which counts 2. 2048: two of them. 1600: one, and 576 left,
    # in 3 steps over 256 single elements.
    assert steps(np.array([2048.0, 1600.0]), 256.0, 4.0).tolist() == [4.0, 5.0]
    # 2047 is askew in 3 rows of 4: a step over 256 first, then 1791 = one vector step and 767 in 3: 1 + 2 + 3 = 6;
    # the fourth row: one vector step and 1023 in 4: 6
    assert steps(np.array([2047.0]), 256.0, 4.0).tolist() == [6.0]
    # 2305, 512 threads: one vector step and 257 in 1: 3; askew 1 + 1793 in 4 = 5; 3 + 0.75 x (5 - 3) = 4.5
    assert steps(np.array([2305.0]), 512.0, 4.0).tolist() == [4.5]


def test_a_row_in_a_block_by_hand() -> None:
    # 1e5 rows of 2048: 1000 an SM x 256 threads of 2048 x (4 + 4) steps of 2048 cycles at 1 GHz = 2.048 ms
    got = FAMILY.formula(Softmax(rows=10**5, cols=2048), ROUND, VALUES, COLD)
    assert got.alone["math"] == pytest.approx(2.048e-3)
    # 800 resident rows of 8192 B: 2 x 6.55 MB over 8 MB that fit is 1.638; misses (1.638 - 1) / 5 = 0.1277 of two
    # further reads: 0.8192 GB x (2 + 2 x 0.1277) at 0.8 TB/s
    assert got.adds["hbm"] == pytest.approx(0.8192e-3 * (2 + 2 * 0.12768) / 0.8, rel=1e-4)


def test_a_smaller_sm_holds_fewer_blocks_whose_warps_wait_less_for_each_other() -> None:
    op = Softmax(rows=10**5, cols=2048)
    few = FAMILY.formula(op, replace(ROUND, threads_per_sm=1024.0), VALUES, COLD)
    # 1024 threads instead of 2048: half the blocks at once, so that rows would take twice 2.048 ms; of a step only the
    # 28 % that it waits for its loads take as long, and the rest half of it
    assert few.alone["math"] == pytest.approx(2 * (0.28 + 0.72 / 2) * 2.048e-3)
    # with half the schedulers each has twice the warps
    slow = FAMILY.formula(op, replace(ROUND, schedulers_per_sm=2.0), VALUES, COLD)
    assert slow.alone["math"] == pytest.approx((0.28 + 0.72 * 2) * 2.048e-3)


def test_a_step_over_a_vector_takes_a_third_more_for_each_further_element() -> None:
    # 2048 of bf16 in one step of 256 threads over 8 elements each: 1 + 7 / 3; of fp32 in two over 4: 2 x (1 + 3 / 3)
    assert steps(np.array([2048.0]), 256.0, 8.0) == pytest.approx([10 / 3])
    assert steps(np.array([2048.0]), 256.0, 4.0) == pytest.approx([4.0])


def test_a_block_takes_at_most_a_multiple_of_what_a_warp_would_take() -> None:
    # A warp's 1e4 rows an SM x (1100 + 60) x 0.25 cycles at 1 GHz are 2.9 ms; so fast a memory is no limit. A block
    # has 256 threads of 2048 x (4 + 2 + 1) steps of 2048 cycles = 1792 cycles a row, 17.92 ms: more than 2.4 x 2.9 ms.
    fast = replace(ROUND, bandwidth_bytes_per_s=1e15)
    op = Softmax(rows=10**6, cols=1100)
    assert FAMILY.formula(op, fast, VALUES, COLD).alone["math"] == pytest.approx(2.4 * 2.9e-3)
    assert FAMILY.formula(op, replace(fast, kernels=Kernels(softmax_threads=1024)), VALUES, COLD).alone[
        "math"
    ] == pytest.approx(3.5 * 2.9e-3)
    # Where the memory limits the warp, 8.8 GB at 0.4 TB/s are 22 ms: the block is far below 2.4 times that.
    slow = replace(ROUND, bandwidth_bytes_per_s=0.5e12)
    assert FAMILY.formula(op, slow, VALUES, COLD).alone["math"] == pytest.approx(17.92e-3)


def test_what_the_call_before_left_is_read_again_by_both_further_reads() -> None:
    op = Softmax(rows=10**5, cols=2048)
    cold, warm = (FAMILY.formula(op, ROUND, VALUES, conditions).alone["hbm"] for conditions in (COLD, WARM))
    # 0.8 GB of rows through 10 MB: 2 x 0.5 x 10 MB more at 0.8 TB/s
    assert warm - cold == pytest.approx(1e7 / 0.8e12, rel=1e-6)
    # a warp reads its row once
    narrow = Softmax(rows=10**5, cols=1024)
    assert (
        FAMILY.formula(narrow, ROUND, VALUES, WARM).alone["hbm"]
        == FAMILY.formula(narrow, ROUND, VALUES, COLD).alone["hbm"]
    )


def test_very_wide_rows_are_read_three_times() -> None:
    got = FAMILY.formula(Softmax(rows=10**4, cols=10**5), ROUND, VALUES, COLD)
    assert got.adds["hbm"] == pytest.approx(4 * 4e9 / 0.8e12)


def test_few_rows_wait_as_long_as_one() -> None:
    one, each, full = (
        FAMILY.formula(Softmax(rows=r, cols=4096), ROUND, VALUES, COLD).alone["math"] for r in (1, 100, 400)
    )
    # (4 + 2 x 2) steps of 2048 cycles at 1 GHz where four blocks of 512 threads fill an SM; one waits 0.28 of a
    # step, and issues a quarter of the rest
    assert full == pytest.approx(8 * 2.048e-6)
    assert one == each == pytest.approx((0.28 + 0.72 / 4) * full)
    # never more than 2.4 times what as many warps take as an SM holds blocks: one of (1056 + 60) x 0.25 cycles
    short = FAMILY.formula(Softmax(rows=1, cols=1056), replace(ROUND, threads_per_sm=256.0), VALUES, COLD)
    assert short.alone["math"] == pytest.approx(2.4 * 0.279e-6)


def test_rows_longer_than_measured_say_so() -> None:
    widths = []
    for cols in (16384, 16385):
        found = predict(Softmax(rows=10, cols=cols), hardware("rtx-3090"), library="torch-2.3")
        widths.append(found.predicted_time_high_s / found.predicted_time_s)
        assert ("extrapolation" in found.uncertainty) == (cols > 16384)
    assert widths[1] > 1.15 * widths[0]
    # the kernels of today were measured with such rows
    today = predict(Softmax(rows=10, cols=32768), hardware("h100-sxm5-80gb"), library="torch")
    assert "extrapolation" not in today.uncertainty


@pytest.mark.parametrize("conditions", [COLD, WARM, EVENT, NOW])
@pytest.mark.parametrize("cols", [1, 100, 1000, 1601, 4096, 20000])
def test_more_rows_never_take_less_time(conditions: Conditions, cols: int) -> None:
    rows = np.unique(np.geomspace(1, 1e7, 300).round())
    assert np.all(
        np.diff(FAMILY.timed_terms(Softmax(rows=rows, cols=cols), ROUND, DEFAULT, conditions).time_s) >= -1e-15
    )


@given(st.lists(sizes, min_size=1, max_size=6), st.sampled_from([COLD, WARM, EVENT, NOW]))
def test_scalar_equals_array(shapes: list[tuple[int, int]], conditions: Conditions) -> None:
    rows, cols = np.array(shapes).T
    together = FAMILY.timed_terms(Softmax(rows=rows, cols=cols), ROUND, VALUES, conditions)
    for index, (one, width) in enumerate(shapes):
        alone = FAMILY.timed_terms(Softmax(rows=one, cols=width), ROUND, VALUES, conditions)
        assert np.asarray(together.time_s)[index] == pytest.approx(alone.time_s, rel=1e-13)


@given(sizes, st.sampled_from([COLD, WARM, EVENT, NOW]), st.sampled_from(["fp32", "fp16", "bf16"]))
def test_every_term_is_a_time_on_every_machine(shape: tuple[int, int], conditions: Conditions, dtype: str) -> None:
    for spec in load_all():
        if spec.kind == "gpu":
            op = Softmax(rows=shape[0], cols=shape[1], dtype=dtype)
            got = FAMILY.timed_terms(op, Machine.of(spec, resolve_peak(op, spec)), DEFAULT, conditions)
            assert all(np.isfinite(value) and value >= 0 for value in got.adds.values())


@pytest.mark.parametrize(("name", "limit"), [("v100-pcie-32gb", 4.0), ("p100-pcie-16gb", 5.0), ("p4", 6.0)])
def test_rows_that_were_not_fitted_agree(data_dir: Path, name: str, limit: float) -> None:
    table = read_measurements(data_dir / "measurements" / "neusight_softmax_fp32.csv.gz")
    found = next(found for found in table.calls if found.hardware == name)
    spec, order = hardware(name), np.random.default_rng(0).permutation(len(found))
    train, test = (
        Group(rows.op, Machine.of(spec, resolve_peak(rows.op, spec)), rows.conditions, rows.time_s)
        for rows in (found.take(order[:200]), found.take(order[200:]))
    )
    error = np.abs(np.expm1(log_ratio(FAMILY, fit(FAMILY, [train]).values, [test])))
    assert 100 * error.mean() < limit


def test_the_call_takes_longer_to_dispatch_than_a_plain_one() -> None:
    # 1.3 x 40 us
    assert FAMILY.timed_terms(Softmax(rows=1, cols=1), ROUND, VALUES, EVENT).time_s == pytest.approx(52e-6, rel=1e-3)


def test_amd_reads_rows_of_whole_vectors_once() -> None:
    machine = replace(ROUND, l2_bytes=1e6, kernels=Kernels(softmax_threads=1024))
    whole, part = (
        FAMILY.formula(Softmax(rows=10**5, cols=n), machine, VALUES, COLD).alone["hbm"] for n in (4096, 4097)
    )
    # in and out; or twice more in: 200 resident rows are 3.3 MB, and 6.6 MB pass between reads, 8 times what fits
    assert whole == pytest.approx(2 * 4096 * 4e5 / 0.8e12)
    assert part == pytest.approx(4 * 4097 * 4e5 / 0.8e12)


def test_amd_takes_as_long_as_a_row_has_columns() -> None:
    machine = replace(ROUND, l2_bytes=1e6, kernels=Kernels(softmax_threads=1024))
    cols = np.array([2048.0, 2049.0])
    got = FAMILY.formula(Softmax(rows=10**5, cols=cols), machine, VALUES, COLD).alone["math"]
    # 1000 rows a CU x 1024 threads of 2048 x 2048 cycles at 1 GHz, for each step: 1.024 ms. Joining is worth 1.76
    # steps; 2048 columns in shared memory 0.43 x 2, 2049 read three times 2049 / 1024 = 2.00098
    assert got == pytest.approx([1.024e-3 * 2.62, 1.024e-3 * 3.76098], rel=1e-5)


def test_a_row_that_does_not_fit_in_shared_memory_is_read_three_times() -> None:
    machine = replace(ROUND, l2_bytes=1e6, kernels=Kernels(softmax_threads=1024))
    cols = np.array([16380.0, 16384.0])
    got = FAMILY.formula(Softmax(rows=10**5, cols=cols), machine, VALUES, COLD).alone["hbm"]
    # 65,520 B of a row fit, 65,536 B do not: 2 passes of all bytes, or 4
    assert got == pytest.approx([2 * 16380 * 4e5 / 0.8e12, 4 * 16384 * 4e5 / 0.8e12])


def test_a_warp_waits_for_each_column_of_a_lane() -> None:
    # one row of 1024: 32 columns a lane and one load more, 0.1 us each; its issue, 1024 x 0.25 cycles at 1 GHz on one
    # of 100 SMs, is 0.1 % of that. Columns of fp32 are not converted.
    for dtype, share in (("bf16", 1.0), ("fp32", 0.68)):
        got = FAMILY.formula(Softmax(rows=1, cols=1024, dtype=dtype), ROUND, VALUES, NOW)
        assert got.alone["math"] == pytest.approx(share * 3.3e-6, rel=1e-3)


def test_a_block_keeps_its_row_in_registers() -> None:
    # 400 rows of 4096, 4 columns a thread, 2 blocks an SM: 2 rounds of (6 + 4) x 0.1 us and 2 x 1.15 x 0.25 x 4096 ns
    four = FAMILY.formula(Softmax(rows=400, cols=4096), ROUND, VALUES, NOW)
    assert four.alone["math"] == pytest.approx(2 * (1e-6 + 2 * 1.15 * 0.25 * 4096e-9))
    # one column more: 5 a thread need more registers, and an SM holds one block: 4 rounds
    five = FAMILY.formula(Softmax(rows=400, cols=4097), ROUND, VALUES, NOW)
    assert five.alone["math"] == pytest.approx(4 * (1.1e-6 + 1.15 * 0.25 * 5120e-9))
    # read once and written once
    assert five.alone["hbm"] == pytest.approx(2 * 400 * 4097 * 4 / 0.8e12)


def test_rows_that_fit_nowhere_are_read_three_times_today_too() -> None:
    # 10,240 columns of fp32, 10 a thread, are 40 KiB of shared memory; 12,288 columns are 48 KiB, too many
    cols = np.array([10240.0, 12288.0])
    small = replace(ROUND, l2_bytes=1e5)
    got = FAMILY.formula(Softmax(rows=10**5, cols=cols), small, VALUES, NOW).alone["hbm"]
    assert got == pytest.approx(cols * 4e5 / 0.8e12 * [2.0, 4.0])


def test_a_fused_kernel_only_streams() -> None:
    spec = hardware("h100-sxm5-80gb")
    op = Softmax(rows=4096, cols=4096, dtype="bf16")
    torch, triton = (predict(op, spec, library=library) for library in ("torch", "triton"))
    # an own H100 record (torch 2.11, Triton 3.6): 56.9 and 25.3 us
    assert torch.predicted_time_s == pytest.approx(56.9e-6, rel=0.2)
    assert triton.predicted_time_s == pytest.approx(25.3e-6, rel=0.2)


@pytest.mark.parametrize(("cols", "less"), [(1024, False), (8192, True), (28032, True)], ids=["warp", "kept", "read"])
def test_a_block_issues_less_for_the_logarithm_which_has_one_exp_and_no_division(cols: int, less: bool) -> None:
    machine = hardware("h100-sxm5-80gb")
    plain, log = (
        predict(Softmax(rows=10_000, cols=cols, dtype="bf16", log=log), machine, library="torch").predicted_time_s
        for log in (False, True)
    )
    # the latency of the loads and the joining of the threads stay
    assert 0.67 * plain < log < plain if less else log == plain


def test_cross_entropy_ends_with_a_kernel_whose_threads_wait_for_two_loads() -> None:
    machine = hardware("h200-sxm-141gb")
    loss = CrossEntropy(rows=100, vocab=10_000)
    softmax, pick = loss.composition()
    times = [predict(part, machine, library="torch").predicted_time_s for part in (softmax, pick)]
    assert (softmax.op, pick.op, pick.rows, pick.cols) == ("softmax", "index_select", 100, 1)
    assert predict(loss, machine, library="torch").predicted_time_s == pytest.approx(sum(times))
    # a start of about 2.5 us and two loads, the second of which has the first's result as its address
    assert 2.5e-6 < times[1] < 5e-6
