"""Bound, prediction and advice: limiting cases by hand on a machine with round numbers, and rules that always hold."""

from __future__ import annotations

import dataclasses
import math
import pickle
from dataclasses import replace
from types import MappingProxyType

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import perfmodel as pm
from perfmodel.core.hardware import Hardware, Launch, MemoryLevel, Peak
from perfmodel.core.units import format_si
from perfmodel.errors import UsageError
from perfmodel.hardware_catalog import load_all
from perfmodel.operators.parse import parse_operators
from perfmodel.prediction import ceilings
from perfmodel.prediction.advice import ADVICE, EXPECTED, advise
from perfmodel.prediction.measured import TOO_FAST, judge_measured
from perfmodel.prediction.predict import bound_time, floor_time

sizes = st.integers(1, 20_000)


@pytest.fixture(scope="module")
def a100() -> Hardware:
    return pm.hardware("a100-sxm4-40gb")


def test_compute_bound_by_hand(simple_gpu: Hardware) -> None:
    # 2 * 5000^3 = 250 GFLOP over 100 TFLOP/s = 2.5 ms; 150 MB over 1 TB/s = 0.15 ms
    p = pm.predict(pm.Gemm(m=5000, n=5000, k=5000, dtype="fp16"), simple_gpu)
    assert (p.limiter, p.engine) == ("compute", "tensor fp16")
    assert p.bound_time_s == pytest.approx(2.5e-3)
    assert p.attainable_flop_per_s == pytest.approx(100e12)
    assert p.ridge_point_flop_per_byte == pytest.approx(100)
    assert p.fits_in == "hbm"
    assert math.isnan(p.resident_bound_time_s)  # type: ignore[arg-type]


def test_memory_bound_by_hand(simple_gpu: Hardware) -> None:
    # 3 * 4 B * 1e7 = 120 MB over 1 TB/s = 120 us
    p = pm.predict(pm.Elementwise(numel=10_000_000), simple_gpu)
    assert p.limiter == "hbm"
    assert p.bound_time_s == pytest.approx(120e-6)
    assert p.attainable_bytes_per_s == pytest.approx(1e12)
    assert p.attainable_flop_per_s == pytest.approx(1e12 / 12)


@pytest.mark.parametrize("text", [
    "sampling rows=69 vocab=72384 algorithm=top_k", "sampling rows=60 vocab=100000 algorithm=multinomial",
    "sort rows=60 cols=168384 dtype=fp32", "topk rows=1509 cols=16860 k=3 dtype=bf16",
    "topk rows=90 cols=100000 k=8 algorithm=sort", "batch_norm n=5 c=448 hw=3136", "scan cols=1e7 algorithm=blelloch",
    "quantize rows=3000 cols=4096 scale=tensor", "gemm m=16 n=4096 k=4096 dtype=bf16",
])  # fmt: skip
def test_what_is_attainable_lies_on_the_roof_however_often_a_kernel_reads_its_data(text: str) -> None:
    """Of several passes only the first has to cross device memory: the bound counts no other, so rates do not."""
    (op,) = parse_operators(text.split())
    machine = pm.hardware("h200")
    p = pm.predict(op, machine)
    peak = machine.main_memory.bandwidth_bytes_per_s
    assert p.limiter == "hbm"
    assert p.attainable_bytes_per_s == pytest.approx(peak)
    assert p.attainable_flop_per_s == pytest.approx(p.arithmetic_intensity_flop_per_byte * peak)
    assert (p.bytes_read + p.bytes_written) / p.bound_time_s == pytest.approx(peak)
    assert p.predicted_bytes_per_s == pytest.approx(p.predicted_utilization * peak)


def test_compulsory_traffic_by_hand(simple_gpu: Hardware) -> None:
    # radix: 10^7 keys of 4 B are read once and written once; a histogram and three more passes may stay in a cache
    p = pm.predict(pm.Sort(cols=10_000_000), simple_gpu)
    assert (p.bytes_read, p.bytes_written) == (4e7, 4e7)
    assert p.bound_time_s == pytest.approx(80e-6)
    assert p.work.bytes == 9 * 4e7


def test_the_sustained_roofline_by_hand(simple_gpu: Hardware) -> None:
    # a transpose has no closed form: 2 * 4 B * 1e7 = 80 MB at 0.8 TB/s sustained, and 2 us to launch
    p = pm.predict(pm.Transpose(rows=10_000, cols=1000), simple_gpu)
    assert p.predicted_time_s == pytest.approx(102e-6)
    assert p.predicted_terms_s["hbm"] == pytest.approx(100e-6)
    assert p.prediction_basis == "roofline: sustained hbm + launch"
    cpu = dataclasses.replace(simple_gpu, kind="cpu")
    product = pm.predict(pm.Gemm(m=5000, n=5000, k=5000, dtype="fp16"), cpu)
    assert product.predicted_time_s == pytest.approx(250e9 / 80e12 + 2e-6)
    assert product.prediction_basis == "roofline: sustained compute + launch"


def test_launch_bound_by_hand(simple_gpu: Hardware) -> None:
    p = pm.predict(pm.Elementwise(numel=1), simple_gpu)
    assert (p.limiter, p.bound_time_s) == ("launch", 1e-6)
    assert p.advice == EXPECTED["launch"]


def test_link_bound_by_hand(simple_gpu: Hardware) -> None:
    pinned = pm.predict(pm.Memcpy(bytes=10**9), simple_gpu)
    pageable = pm.predict(pm.Memcpy(bytes=10**9, pinned=False), simple_gpu)
    assert (pinned.limiter, pinned.bound_time_s) == ("link", pytest.approx(0.1))
    assert pinned.largest_term == "pcie"
    assert pinned.predicted_time_s == pytest.approx(1 / 8 + 2e-6)
    assert pageable.bound_time_s == pinned.bound_time_s
    assert pageable.predicted_time_s == pytest.approx(1 / 4 + 2e-6)
    assert pinned.advice == EXPECTED["link"]
    assert pageable.advice == EXPECTED["pageable"]


def test_data_in_a_cache_has_a_bound_of_its_own(simple_gpu: Hardware) -> None:
    # 6 MB fit the L2 of 10 MB: 6 us from HBM, 1.5 us at 4 TB/s
    p = pm.predict(pm.Elementwise(numel=500_000), simple_gpu)
    assert (p.bound_time_s, p.limiter) == (pytest.approx(6e-6), "hbm")
    assert (p.fits_in, p.resident_limiter) == ("l2", "l2")
    assert p.resident_bound_time_s == pytest.approx(1.5e-6)
    # and since it moves in less than a launch takes, launching is what to mend
    assert p.advice == EXPECTED["launch, in a cache"]


def test_what_fits_nowhere_is_said(simple_gpu: Hardware) -> None:
    assert pm.predict(pm.Elementwise(numel=10**12), simple_gpu).fits_in == "nothing"


def test_a_cache_of_unknown_bandwidth_gives_no_bound(simple_gpu: Hardware) -> None:
    machine = dataclasses.replace(simple_gpu, memory=(simple_gpu.memory[0], MemoryLevel("l2", 1e7)))
    p = pm.predict(pm.Elementwise(numel=500_000), machine)
    assert (p.fits_in, p.resident_limiter) == ("l2", "")
    assert math.isnan(p.resident_bound_time_s)  # type: ignore[arg-type]


def test_a_cache_in_parts_holds_what_fits_in_one_part(simple_gpu: Hardware) -> None:
    machine = dataclasses.replace(simple_gpu, memory=(simple_gpu.memory[0], MemoryLevel("l2", 1e7, 4e12, partitions=8)))
    # 6 MB fit in 10 MB, and not in an eighth of it
    assert pm.predict(pm.Elementwise(numel=500_000), machine).fits_in == "hbm"
    assert pm.predict(pm.Elementwise(numel=100_000), machine).fits_in == "l2"


def test_without_measured_figures_the_prediction_assumes_a_share_of_the_datasheet_and_says_so(
    simple_gpu: Hardware,
) -> None:
    bare = dataclasses.replace(simple_gpu, memory=(MemoryLevel("hbm", 1e9, 1e12),), launch=Launch())
    p = pm.predict(pm.Transpose(rows=10_000, cols=1000), bare)
    assert p.bound_time_s == pytest.approx(80e-6)
    assert p.predicted_time_s == pytest.approx(80e-6 / 0.85 + 2.5e-6)
    assert p.prediction_basis == "roofline: assumed 85% of datasheet hbm + 2.5 us of launch"
    gemm = pm.predict(pm.Gemm(m=5000, n=5000, k=5000), dataclasses.replace(bare, kind="cpu"))
    assert gemm.prediction_basis == "roofline: assumed 80% of datasheet compute + 2.5 us of launch"


def test_a_copy_reaches_the_share_of_pcie_that_others_measured(simple_gpu: Hardware) -> None:
    bare = dataclasses.replace(simple_gpu, sustained_links={})
    pinned, pageable = (pm.predict(pm.Memcpy(bytes=10**9, pinned=pinned), bare) for pinned in (True, False))
    assert pinned.predicted_time_s == pytest.approx(0.1 / 0.8 + 2e-6)
    assert pageable.predicted_time_s == pytest.approx(0.1 / 0.4 + 2e-6)
    assert pinned.bound_time_s == pageable.bound_time_s == pytest.approx(0.1)
    assert pinned.prediction_basis == "memcpy: assumed 80% of datasheet pcie"
    assert pageable.prediction_basis == "memcpy: assumed 40% of datasheet pcie"
    assert pm.predict(pm.Memcpy(bytes=10**9), simple_gpu).prediction_basis == "memcpy: sustained pcie"


def test_copies_within_the_device_cross_its_memory_twice(simple_gpu: Hardware) -> None:
    copied = pm.predict(pm.Memcpy(bytes=10**9, direction="d2d"), simple_gpu)
    assert (copied.family, copied.largest_term) == ("memcpy_device", "hbm")
    # as a kernel that reads and writes the same bytes; shorter than predicted is as likely as longer
    kernel = pm.predict(pm.Dropout(numel=10**9, dtype="int8", backward=True), simple_gpu)
    assert copied.predicted_terms_s["hbm"] == pytest.approx(2 / 3 * kernel.predicted_terms_s["hbm"])
    assert copied.predicted_time_low_s < copied.predicted_time_s < copied.predicted_time_high_s


def test_a_board_may_exceed_the_clock_of_its_printed_peaks(simple_gpu) -> None:
    """The simple machine at 1.2 times its clock: the bound stays, and arithmetic may beat it by 1.2, bytes may not."""
    faster = replace(simple_gpu, clocks_hz=MappingProxyType({"vector": 1e9}), max_clock_hz=1.2e9)
    product, copy = pm.Gemm(m=8192, n=8192, k=8192), pm.Elementwise(numel=10**9, kind="relu")
    for op, ratio in ((product, 1.2), (copy, 1.0)):
        found = pm.predict(op, faster)
        assert found.bound_time_s == pm.predict(op, simple_gpu).bound_time_s
        assert floor_time(op, faster) == pytest.approx(found.bound_time_s / ratio)
        assert found.predicted_time_low_s >= floor_time(op, faster)
    assert floor_time(product, replace(faster, max_clock_hz=0.9e9)) == pytest.approx(floor_time(product, simple_gpu))
    sizes = np.array([8192.0, 64.0])
    swept = pm.predict(pm.Gemm(m=sizes, n=8192, k=8192), faster)
    for place, m in enumerate(sizes.tolist()):
        one = pm.predict(pm.Gemm(m=m, n=8192, k=8192), faster)
        assert swept.predicted_time_low_s[place] == pytest.approx(one.predicted_time_low_s)


def test_a_geforce_measured_above_its_printed_peak_is_no_mistake() -> None:
    # 86 TFLOP/s of 82.6: github.com/zzc0721/torch-performance-test-data, 8192 cubed in TF32
    op = pm.Gemm(m=8192, n=8192, k=8192, dtype="tf32")
    judged = judge_measured(op, pm.hardware("rtx-4090"), op.work().flop / 86e12)
    assert judged.verdict != TOO_FAST
    # the constants of vLLM's table leave less room, so that the clock is named
    bf16 = replace(op, dtype="bf16")
    fast = judge_measured(bf16, pm.hardware("rtx-4090"), op.work().flop / 176e12, library="vllm")
    assert any("1.23 times that of the printed peaks" in cause for cause in fast.causes)
    with_a_limit = judge_measured(op, pm.hardware("rtx-4090"), op.work().flop / 110e12)
    assert with_a_limit.verdict == TOO_FAST


def test_the_interval_of_copies_contains_what_others_measured() -> None:
    # pinned to and from P100, and to A100 and RTX 4090, as a share of PCIe; pageable from an RTX 4090
    for pinned, shares in ((True, (12.15 / 15.75, 12.89 / 15.75, 25.1 / 31.5, 26.6 / 31.5)), (False, (0.3, 0.58))):
        found = pm.predict(pm.Memcpy(bytes=2**30, pinned=pinned), pm.hardware("rtx-4090"))
        for share in shares:
            measured = 2**30 / (share * 31.51e9)
            assert found.predicted_time_low_s < measured < found.predicted_time_high_s


def test_pinned_copies_over_generation_4_reach_24_to_26_gb_per_s() -> None:
    copied = pm.predict(pm.Memcpy(bytes=2**30), pm.hardware("a100-sxm4-80gb"))
    assert 24e9 < 2**30 / copied.predicted_time_s < 26.6e9


def test_the_assumed_shares_are_the_medians_of_the_shipped_specs() -> None:
    machines = load_all()
    memory = [m.main_memory.sustained_bytes_per_s / m.main_memory.bandwidth_bytes_per_s for m in machines
              if m.main_memory.sustained_bytes_per_s]  # fmt: skip
    compute = [p.sustained_flop_per_s / p.flop_per_s for m in machines for p in m.peaks if p.sustained_flop_per_s]
    launch = [m.launch.overhead_s for m in machines if m.launch.overhead_s and "assumed" not in m.launch.source]
    assert np.median(memory) == pytest.approx(ceilings.ASSUMED_BANDWIDTH, abs=0.01)
    assert np.median(compute) == pytest.approx(ceilings.ASSUMED_COMPUTE, abs=0.01)
    assert np.median(launch) == pytest.approx(ceilings.ASSUMED_LAUNCH_S, rel=0.05)


def test_a_dtype_that_is_slower_than_fp32_is_computed_in_fp32(simple_gpu: Hardware) -> None:
    # as on a P4, whose fp16 runs at 1/64 of fp32
    slow = dataclasses.replace(simple_gpu, peaks=(Peak("fp32", "vector", 10e12), Peak("fp16", "vector", 0.2e12)))
    assert pm.predict(pm.Gemm(m=64, n=64, k=64, dtype="fp16"), slow).engine == "vector fp32"
    assert pm.predict(pm.Softmax(rows=64, cols=64, dtype="fp16"), slow).engine == "vector fp32"
    # and where it is faster, as on a P100, it is used
    fast = dataclasses.replace(simple_gpu, peaks=(Peak("fp32", "vector", 10e12), Peak("fp16", "vector", 20e12)))
    assert pm.predict(pm.Softmax(rows=64, cols=64, dtype="fp16"), fast).engine == "vector fp16"


def test_a_misspelt_view_of_time_names_the_nearest(a100: Hardware) -> None:
    with pytest.raises(UsageError, match=r"unknown timing 'evnt'.*Did you mean 'event'"):
        pm.predict(pm.Softmax(rows=64, cols=64), a100, timing="evnt")


def test_engines(simple_gpu: Hardware) -> None:
    # fp32 products have no tensor engine here; fp16 norms are done in fp32, the vector engine's only dtype
    assert pm.predict(pm.Gemm(m=64, n=64, k=64), simple_gpu).engine == "vector fp32"
    assert pm.predict(pm.LayerNorm(rows=8, cols=8, dtype="fp16"), simple_gpu).engine == "vector fp32"
    assert pm.predict(pm.Transpose(rows=8, cols=8, dtype="int8"), simple_gpu).engine == ""
    with pytest.raises(UsageError, match=r"no peak for dtype 'fp16' on its vector engine.*fp32"):
        pm.predict(pm.Gemm(m=64, n=64, k=64, dtype="fp16", engine="vector"), simple_gpu)
    with pytest.raises(UsageError, match=r"no peak for dtype 'fp8'.*fp16, fp32"):
        pm.predict(pm.Gemm(m=64, n=64, k=64, dtype="fp8"), simple_gpu)


def test_a_machine_without_the_link_says_so(simple_gpu: Hardware) -> None:
    with pytest.raises(UsageError, match="no link 'pcie'"):
        pm.predict(pm.Memcpy(bytes=8), dataclasses.replace(simple_gpu, links=()))
    with pytest.raises(UsageError, match=r"no link 'nvlink' .*\[link.nvlink\] table .*another one .*: xgmi, pcie, nic"):
        pm.predict(pm.AllReduce(bytes=8, num_gpus=2), dataclasses.replace(simple_gpu, links=()))


def test_a_machine_of_another_vendor_says_so(simple_gpu: Hardware) -> None:
    foreign = dataclasses.replace(simple_gpu, vendor="Acme")
    assert pm.predict(pm.Gemm(m=64, n=64, k=64), foreign).prediction_basis.startswith(
        "gemm_fp32, defaults from other vendors: "
    )


@given(st.lists(st.tuples(sizes, sizes, sizes), min_size=1, max_size=8))
def test_scalar_equals_array(a100: Hardware, shapes: list[tuple[int, int, int]]) -> None:
    m, n, k = (np.array(axis) for axis in zip(*shapes, strict=True))
    together = pm.predict(pm.Gemm(m=m, n=n, k=k, dtype="fp16"), a100).rows()
    alone = [pm.predict(pm.Gemm(m=a, n=b, k=c, dtype="fp16"), a100).rows()[0] for a, b, c in shapes]
    for row, expected in zip(together, alone, strict=True):
        for key in ("limiter", "bound_time_s", "fits_in", "advice", "dimensions", "params"):
            assert row[key] == expected[key], key
        # powers of numbers and of arrays differ in their last bit
        assert row["predicted_time_s"] == pytest.approx(expected["predicted_time_s"], rel=1e-12)


@pytest.mark.parametrize("cache", ["cold", "warm"])
def test_one_point_says_in_every_key_what_a_sweep_says(a100: Hardware, cache: str) -> None:
    rows, cols = np.array([1, 3, 640, 20_000]), np.array([2, 100, 4096, 32_768])
    for make in (pm.LayerNorm, pm.Softmax, pm.Reduction, pm.Transpose):
        many = pm.predict(make(rows=rows, cols=cols), a100, timing="event", cache=cache).rows()
        for index, row in enumerate(many):
            one = pm.predict(make(rows=rows[index], cols=cols[index]), a100, timing="event", cache=cache).rows()[0]
            assert list(one) == list(row)
            for key, value in one.items():
                numbers = isinstance(value, float) or key == "interval_shares"
                near = pytest.approx(value, rel=1e-12, nan_ok=True) if numbers else value
                if key == "not_seen":  # in no order
                    assert set(row[key]) == set(value)
                    continue
                # terms differ in the last bit, and a basis names all that limits the sweep
                assert key in ("predicted_terms_s", "prediction_basis") or row[key] == near, key


@given(sizes, sizes, sizes, st.integers(1, 5000), st.sampled_from("mnk"))
def test_more_work_never_has_a_lower_bound(a100: Hardware, m: int, n: int, k: int, more: int, axis: str) -> None:
    small = {"m": m, "n": n, "k": k}
    large = {**small, axis: small[axis] + more}
    before = pm.predict(pm.Gemm(**small, dtype="fp16"), a100)
    after = pm.predict(pm.Gemm(**large, dtype="fp16"), a100)
    assert after.bound_time_s >= before.bound_time_s


@given(st.sampled_from(pm.hardware_names()), sizes, sizes, st.sampled_from(["fp32", "fp16"]))
def test_the_prediction_never_beats_the_bound(name: str, rows: int, cols: int, dtype: str) -> None:
    p = pm.predict(pm.LayerNorm(rows=rows, cols=cols, dtype=dtype), pm.hardware(name))
    assert p.predicted_time_s >= p.bound_time_s
    assert not p.resident_bound_time_s > p.bound_time_s


def test_bound_time_is_the_bound_of_predict(a100: Hardware) -> None:
    op = pm.Gemm(m=np.array([1, 64, 4096]), n=4096, k=4096, dtype="fp16")
    bound, p = pm.bound_time(op, a100), pm.predict(op, a100)
    assert np.array_equal(bound.time_s, p.bound_time_s)
    assert np.array_equal(bound.limiter, p.limiter)


@pytest.mark.parametrize(
    ("limiter", "bound_s", "time_s", "rule"),
    [
        ("launch", 1e-6, 2e-6, "launch"),
        ("hbm", 1e-6, 3e-6, "launch"),  # under twice the launch overhead of 2 us
        ("hbm", 76e-6, 100e-6, "memory, well used"),
        ("hbm", 74e-6, 100e-6, "memory"),
        ("l2", 80e-6, 100e-6, "memory, well used"),
        ("compute", 49e-6, 100e-6, "compute, poorly used"),
        ("compute", 51e-6, 100e-6, "compute"),
        ("link", 10e-6, 100e-6, "link"),
    ],
)
def test_the_rules_of_advice(limiter: str, bound_s: float, time_s: float, rule: str) -> None:
    assert advise(limiter, bound_s, time_s, 2e-6) == ADVICE[rule]
    many = advise(np.array([limiter, limiter]), np.array([bound_s] * 2), np.array([time_s] * 2), 2e-6)
    assert many.tolist() == [ADVICE[rule]] * 2  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("limiter", "share", "spent_on", "moving", "rule"),
    [
        ("hbm", 0.74, "compute", 0.2, "memory, by arithmetic"),
        ("hbm", 0.76, "compute", 0.2, "memory, well used"),
        ("hbm", 0.5, "hbm", 0.81, "memory, moved again"),
        ("hbm", 0.5, "hbm", 0.79, "memory"),
        ("compute", 0.49, "hbm", 0.5, "compute, by traffic"),
        ("compute", 0.49, "l2", 0.5, "compute, by traffic"),
        ("compute", 0.49, "compute", 0.5, "compute, poorly used"),
        ("compute", 0.51, "hbm", 0.5, "compute"),
        ("launch", 0.02, "compute", 0.0, "launch, by latency"),
        ("launch", 0.02, "hbm", 0.5, "launch, by latency"),
        ("launch", 0.02, "launch", 0.0, "launch"),
        ("launch", 0.02, "host", 0.0, "launch"),
    ],
)
def test_advice_follows_what_the_time_is_spent_on(
    limiter: str, share: float, spent_on: str, moving: float, rule: str
) -> None:
    time_s = 100e-6
    asked = (limiter, share * time_s, time_s, 2e-6)
    assert advise(*asked, spent_on=spent_on, moving_s=moving * time_s, measured=False) == EXPECTED[rule]
    many = advise(*(np.array([one] * 2) for one in asked[:3]), 2e-6, spent_on=np.array([spent_on, limiter]))
    assert many.tolist()[0] == ADVICE[rule.replace("memory, moved again", "memory")]  # type: ignore[union-attr]


def test_few_long_rows_are_not_said_to_wait_for_their_launch() -> None:
    """4 rows of 65,536 take four SMs 130 us, of which the launch is 2; 4 rows of 128 take little more than that."""
    long, short = (pm.predict(pm.LayerNorm(rows=4, cols=cols, dtype="fp16"), "h100") for cols in (65536, 128))
    assert (long.limiter, short.limiter) == ("launch", "launch"), "the ceiling that sets the bound"
    assert long.predicted_terms_s["launch"] < 0.1 * long.predicted_time_s
    assert (long.advice, short.advice) == (EXPECTED["launch, by latency"], EXPECTED["launch"])


def test_a_sort_moves_its_bytes_in_several_passes_and_its_advice_says_so() -> None:
    machine = pm.hardware("h100-sxm5-80gb")
    (sort,) = parse_operators("sort cols=1e8 dtype=fp32")
    assert pm.predict(sort, machine).advice == EXPECTED["memory, moved again"]
    # 256 of k are few for a block, which writes more bytes than it reads
    thin = pm.predict(pm.Gemm(m=4096, n=4096, k=256, dtype="bf16"), machine)
    assert thin.predicted_limiter == "compute"
    assert thin.advice == EXPECTED["memory, by arithmetic"]


def test_advice_of_a_long_sweep_is_that_of_its_pieces(a100: Hardware) -> None:
    many = pm.Softmax(rows=np.arange(1.0, 40001.0), cols=8192, dtype="fp32")
    advice = np.asarray(pm.predict(many, a100).advice)
    for place in (0, 500, 20000, 39999):
        one = pm.predict(pm.Softmax(rows=float(place + 1), cols=8192, dtype="fp32"), a100)
        assert advice[place] == one.advice


def test_results_show_as_tables_in_notebooks(a100: Hardware) -> None:
    p = pm.predict(pm.Gemm(m=4096, n=4096, k=4096, dtype="fp16"), a100)
    shown = p._repr_html_()
    assert "<td>440.5 us</td>" in shown
    assert "m=4096 n=4096 k=4096" in shown


@pytest.mark.parametrize(
    ("megabytes", "cold_us", "warm_us"),
    [
        # 1 TB/s of device memory, 4 TB/s of an L2 of 10 MB
        (8, 8, 2),  # all of it may lie in L2
        (40, 40, 30),  # 10 MB may, 30 MB cross device memory
        (0.4, 1, 1),  # shorter than a launch
    ],
)
def test_warm_calls_are_not_below_what_the_caches_cannot_hold(
    simple_gpu: Hardware, megabytes: float, cold_us: float, warm_us: float
) -> None:
    copy = pm.Elementwise(numel=int(megabytes * 1e6 / 8), kind="copy")
    assert floor_time(copy, simple_gpu) == bound_time(copy, simple_gpu).time_s == pytest.approx(cold_us * 1e-6)
    assert floor_time(copy, simple_gpu, "warm") == pytest.approx(warm_us * 1e-6)


def test_the_floor_counts_only_products_that_no_algorithm_avoids(simple_gpu: Hardware) -> None:
    conv = pm.Conv2d(n=64, c=512, h=64, w=64, k=512, r=3, s=3, padding=1, dtype="fp16")
    assert bound_time(conv, simple_gpu).limiter == "compute"
    assert floor_time(conv, simple_gpu) == pytest.approx(conv.flop() / 4 / 100e12)
    assert floor_time(pm.Gemm(m=4096, n=4096, k=4096, dtype="fp16"), simple_gpu) == pytest.approx(2 * 4096**3 / 100e12)


@pytest.mark.parametrize("m", [64, np.array([1.0, 64.0, 4096.0])], ids=["one", "many"])
@pytest.mark.parametrize("dtype", ["bf16", "fp32"])
def test_terms_that_are_found_later_add_up_to_the_time_also_in_another_process(m: object, dtype: str) -> None:
    made = pm.predict(pm.Gemm(m=m, n=512, k=1000, dtype=dtype), "a100-sxm4-40gb")
    moved = pickle.loads(pickle.dumps(made))
    for one in (made, moved):
        np.testing.assert_allclose(sum(one.predicted_terms_s.values()), one.predicted_time_s, rtol=1e-12)


def test_terms_of_kernels_of_several_families_are_those_of_each(a100: Hardware) -> None:
    """Queries of one token and of many are of two families; their terms are found when they are asked for."""
    seq_q = np.array([1.0, 512.0])
    both = pm.predict(pm.Attention(batch=4, heads=8, seq_q=seq_q, seq_kv=512, head_dim=64, dtype="bf16"), a100)
    for index, size in enumerate(seq_q):
        one = pm.predict(pm.Attention(batch=4, heads=8, seq_q=size, seq_kv=512, head_dim=64, dtype="bf16"), a100)
        assert np.asarray(both.family)[index] == one.family
        for term, time_s in one.predicted_terms_s.items():
            assert np.broadcast_to(both.predicted_terms_s[term], 2)[index] == pytest.approx(time_s, rel=1e-9)


def test_an_interactive_session_shows_machine_bound_and_expectation(simple_gpu: Hardware) -> None:
    p = pm.predict(pm.Gemm(m=64, n=64, k=64, dtype="fp16"), simple_gpu)
    low, high = (format_si(float(end), "s", 3) for end in (p.predicted_time_low_s, p.predicted_time_high_s))
    expected, bound = (format_si(float(time), "s", 3) for time in (p.predicted_time_s, p.bound_time_s))
    assert repr(p) == (
        f"<Prediction: gemm m=64 n=64 k=64 fp16 on {simple_gpu.name}, predicted {expected} ({low} to {high}), "
        f"bound {bound} by {p.limiter}>"
    )
    several = pm.predict(pm.Elementwise(numel=[10**6, 10**8, 10**7], name="add"), simple_gpu)
    least, most = (format_si(float(end(several.predicted_time_s)), "s", 3) for end in (np.min, np.max))
    assert repr(several) == f"<Prediction: add on {simple_gpu.name}, 3 points, predicted {least} to {most}>"
