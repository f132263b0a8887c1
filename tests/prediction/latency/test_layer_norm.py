"""LayerNorm and RMSNorm: worked examples, limits, and agreement with measurements."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import perfmodel as pm
from perfmodel.accuracy.fit import Group, fit, log_ratio
from perfmodel.core.vocabulary import ErrorSource
from perfmodel.hardware_catalog import hardware, load_all
from perfmodel.operators.layer_norm import LayerNorm
from perfmodel.operators.rms_norm import RmsNorm
from perfmodel.prediction.ceilings import resolve_peak
from perfmodel.prediction.conditions import Conditions
from perfmodel.prediction.latency.family import Values
from perfmodel.prediction.latency.layer_norm import FAMILY
from perfmodel.prediction.latency.machine import Machine
from perfmodel.prediction.latency.streams import missed_share, resident_blocks, thrash_bytes
from perfmodel.prediction.predict import predict
from perfmodel.records.measurements import read_measurements

#: 100 SMs at 1 GHz, 1 TB/s, L2 of 10 MB
ROUND = Machine(100.0, 1e9, 1e13, "vector", "fp32", 1e13, 1e12, 1e7, np.inf)
VALUES = {
    "eta": 0.8, "launch": 2e-6, "feed": 0.5, "fill": 0.8, "column": 0.5, "trip": 1e-9, "thrash": 0.5, "host": 40e-6,
    "hidden": 20e-6,
}  # fmt: skip
COLD, WARM = Conditions(), Conditions(cache="warm")
EVENT = Conditions(timing="event", cache="warm", library="torch", version="2.1")
DEFAULT: Values = {constant.name: constant.default for constant in FAMILY.all_constants}
sizes = st.tuples(st.integers(1, 10**6), st.integers(1, 10**5))


def test_narrow_rows_are_bound_by_arithmetic_by_hand() -> None:
    # 1e6 rows of 200 columns: 1e6 / 100 SM x (200 + 800) x 0.5 cycles at 1 GHz = 5 ms
    got = FAMILY.formula(LayerNorm(rows=10**6, cols=200), ROUND, VALUES, COLD)
    assert got.adds["math"] == pytest.approx(5e-3)
    # the rows once in, once out: 1.6 GB + 1.6 kB of weights at 0.8 TB/s = 2 ms
    assert got.alone["hbm"] == pytest.approx(2e-3, rel=1e-5)
    assert got.time_s == pytest.approx((5.0**6 + 2.0**6) ** (1 / 6) * 1e-3 + 2e-6, rel=1e-6)


def test_wide_rows_are_read_twice_by_hand() -> None:
    # 1600 blocks of 128 threads are resident; 1600 rows of 10,000 columns are 64 MB, and 128 MB pass between two
    # reads of one, over 8 MB that fit: 16 times, so that every second read misses
    assert resident_blocks(ROUND, 128.0) == 1600
    assert missed_share(64e6, ROUND, VALUES) == 1.0
    got = FAMILY.formula(LayerNorm(rows=10**5, cols=10**4), ROUND, VALUES, COLD)
    # 3 x 4 GB at 0.8 TB/s
    assert got.adds["hbm"] == pytest.approx(15e-3, rel=1e-4)


def test_between_the_reads_l2_keeps_what_fits() -> None:
    # 2 x 4 MB over 0.8 x 10 MB is 1: nothing misses; 2 x 14 MB is 3.5 times as much: (3.5 - 1) / (6 - 1) = half
    assert missed_share(4e6, ROUND, VALUES) == 0.0
    assert missed_share(14e6, ROUND, VALUES) == pytest.approx(0.5)
    assert missed_share(1.0, replace(ROUND, l2_bytes=0.0), VALUES) > 0.0
    assert missed_share(1e9, replace(ROUND, l2_bytes=0.0), VALUES) == 1.0


def test_what_the_call_before_left_pushes_rows_out_by_hand() -> None:
    # of 10 MB: 3 MB of rows push nothing out; 5 MB are halfway from 3 to 7: 0.5 x 0.5 x 5 MB; of 7 MB on all, and of
    # 10 MB on no more than L2 holds
    got = thrash_bytes(np.array([3e6, 5e6, 8e6, 1e7, 1e9]), ROUND, VALUES, WARM)
    assert got.tolist() == pytest.approx([0.0, 1.25e6, 4e6, 5e6, 5e6])
    assert thrash_bytes(1e9, ROUND, VALUES, COLD) == 0.0
    # two halves of 5 MB with the same lines
    assert thrash_bytes(1e9, replace(ROUND, l2_copies=2.0), VALUES, WARM) == pytest.approx(2.5e6)
    # without L2 nothing is left
    assert thrash_bytes(1e9, replace(ROUND, l2_bytes=0.0), VALUES, WARM) < 1.0


def test_a_smaller_sm_holds_fewer_blocks() -> None:
    assert resident_blocks(replace(ROUND, threads_per_sm=1024.0), 128.0) == 800
    assert resident_blocks(replace(ROUND, threads_per_sm=1536.0), 128.0) == 1200


def test_a_row_takes_its_steps_however_few_rows_there_are() -> None:
    # 2 steps of 512 columns and the join, 1 us each; what the rows issue is 1 or 7 on 100 SMs x 1800 x 0.5 cycles
    values = {**VALUES, "trip": 1e-6}
    for rows in (1, 7):
        got = FAMILY.formula(LayerNorm(rows=rows, cols=1000), ROUND, values, COLD)
        assert got.alone["math"] == pytest.approx(3e-6, rel=1e-3)
    # a sum of squares takes 0.8 of the steps, in 16 bits, and 450 / 800 of the join: 0.8 x (2 + 0.5625) us
    got = FAMILY.formula(RmsNorm(rows=1, cols=1000, dtype="bf16"), ROUND, values, Conditions(library="torch"))
    assert got.alone["math"] == pytest.approx(2.05e-6, rel=1e-3)
    # of 4000 rows every SM issues 40: 36 us
    assert FAMILY.formula(LayerNorm(rows=4000, cols=1000), ROUND, values, COLD).alone["math"] == pytest.approx(
        np.hypot(36e-6, 3e-6)
    )


def test_rows_of_no_whole_vectors_take_two_kernels() -> None:
    # an own H100 record (torch 2.11, fp16): 9.2 us, where 1024 columns take about 4.6
    spec = hardware("h100-sxm5-80gb")
    odd, even = (predict(LayerNorm(rows=400, cols=n, dtype="fp16"), spec, library="torch") for n in (1030, 1032))
    assert odd.predicted_time_s == pytest.approx(9.2e-6, rel=0.2)
    assert odd.predicted_time_s > 1.5 * even.predicted_time_s


def test_single_elements_take_as_many_instructions_in_16_bits_and_read_large_rows_again() -> None:
    wide, narrow = (LayerNorm(rows=10**6, cols=1023, dtype=dtype) for dtype in ("fp32", "fp16"))
    of_wide, of_narrow = (FAMILY.formula(op, ROUND, VALUES, COLD) for op in (wide, narrow))
    assert of_narrow.alone["math"] == pytest.approx(of_wide.alone["math"])
    # (1023 + 1900) columns of 0.5 cycles, where whole vectors take (1024 + 800)
    vectors = FAMILY.formula(LayerNorm(rows=10**6, cols=1024), ROUND, VALUES, COLD)
    assert of_wide.alone["math"] / vectors.alone["math"] == pytest.approx(2923 / 1824, rel=1e-3)
    # RMSNorm computes the mean of single elements as well
    squares = FAMILY.formula(RmsNorm(rows=10**6, cols=1023), ROUND, VALUES, Conditions(library="torch"))
    assert squares.alone["math"] == pytest.approx(of_wide.alone["math"])
    # the second kernel reads the rows from memory, or from L2 where they fit
    small, large = (LayerNorm(rows=rows, cols=1023) for rows in (100, 10**6))
    read = [FAMILY.formula(op, ROUND, VALUES, COLD).alone["hbm"] / float(op.work().bytes) for op in (small, large)]
    assert read[1] / read[0] == pytest.approx(1.5, rel=1e-3)


def test_single_elements_wait_for_their_loads_once_for_each_round_of_blocks_by_hand() -> None:
    # 4 blocks of 512 threads on each of 100 SMs, and 8 of 256: one round of up to 400 rows and of up to 800
    values = {**VALUES, "trip": 1e-6, "column": 1e-6}
    # 3 steps of 512 columns and 5 of 256, half of 0.8 us each, and 10 / 7 us for the join
    for rows in (1, 400):
        got = FAMILY.formula(LayerNorm(rows=rows, cols=1026), ROUND, values, COLD)
        assert got.alone["math"] == pytest.approx((8 * 0.4 + 10 / 7) * 1e-6, rel=1e-3)
    # 1600 rows are 4 rounds of the first kernel and 2 of the second
    got = FAMILY.formula(LayerNorm(rows=1600, cols=1026), ROUND, values, COLD)
    assert got.alone["math"] == pytest.approx((4 * (3 * 0.4 + 10 / 7) + 2 * 5 * 0.4) * 1e-6, rel=1e-3)
    # an SM that holds half the threads takes twice the rounds
    half = replace(ROUND, threads_per_sm=1024.0)
    twice = FAMILY.formula(LayerNorm(rows=1600, cols=1026), half, values, COLD)
    assert twice.alone["math"] == pytest.approx(2.0 * got.alone["math"], rel=1e-3)


def test_frameworks_run_rms_norm_as_layer_norm_and_fused_kernels_only_stream() -> None:
    spec = hardware("h100-sxm5-80gb")
    op = RmsNorm(rows=256, cols=8192, dtype="bf16")
    torch, triton = (predict(op, spec, library=library) for library in ("torch", "triton"))
    # an own H100 record (torch 2.11): 15.4 us
    assert torch.predicted_time_s == pytest.approx(15.4e-6, rel=0.2)
    assert triton.predicted_time_s < 0.5 * torch.predicted_time_s


def test_norms_are_less_sure_where_bytes_are_to_spare() -> None:
    """26 B of memory a clock and SM on a B200, 18 on an H200, the most that was measured."""
    op = pm.LayerNorm(rows=8192, cols=4096, dtype="bf16")
    found = {name: pm.predict(op, name, library="torch").uncertainty for name in ("b200", "gb200", "h200", "a100")}
    assert {name for name, sources in found.items() if ErrorSource.EXTRAPOLATION in sources} == {"b200", "gb200"}


@pytest.mark.parametrize("engine", ["sglang", "trtllm"])
def test_engines_with_flashinfers_norm_do_not_take_what_vllms_takes(engine: str) -> None:
    """vLLM's kernel, of which alone there are rows, takes its instructions' time; FlashInfer's moves whole vectors."""
    op, card = RmsNorm(rows=4096, cols=8192, dtype="bf16"), hardware("h100")
    found, same, vllms = (predict(op, card, library=name) for name in (engine, "flashinfer", "vllm"))
    assert found.predicted_time_s == pytest.approx(same.predicted_time_s)
    assert vllms.predicted_time_s > 2.0 * found.predicted_time_s
    assert found.predicted_time_high_s > 2.0 * found.predicted_time_low_s, "nobody measured it"


@pytest.mark.parametrize("op", [LayerNorm, RmsNorm, pm.Softmax])
def test_rows_of_pytorch_elsewhere_are_less_sure(op: type) -> None:
    here, there = (
        pm.predict(op(rows=8192, cols=4096, dtype="bf16"), "h100", library=x) for x in ("torch-2.11", "torch")
    )
    assert there.predicted_time_s == here.predicted_time_s
    assert ErrorSource.INSTALLATION in there.uncertainty
    assert ErrorSource.INSTALLATION not in here.uncertainty
    assert there.predicted_time_high_s > here.predicted_time_high_s


def test_narrow_elements_take_fewer_loads_but_on_matrix_cores_of_amd() -> None:
    wide, narrow = (LayerNorm(rows=10**6, cols=1024, dtype=dtype) for dtype in ("fp32", "fp16"))
    amd = replace(ROUND, matrix_instruction="mfma")
    for machine, share in ((ROUND, 0.5), (amd, 1.0)):
        of_wide, of_narrow = (FAMILY.formula(op, machine, VALUES, COLD).alone["math"] for op in (wide, narrow))
        assert of_narrow == pytest.approx(share * of_wide)


@pytest.mark.parametrize("conditions", [COLD, WARM, EVENT])
def test_more_rows_or_columns_never_take_less_time(conditions: Conditions) -> None:
    many = np.unique(np.geomspace(1, 1e6, 300).round())
    for got in (
        FAMILY.timed_terms(LayerNorm(rows=many, cols=700), ROUND, DEFAULT, conditions),
        FAMILY.timed_terms(LayerNorm(rows=700, cols=4.0 * many), ROUND, DEFAULT, conditions),
        FAMILY.timed_terms(LayerNorm(rows=many, cols=701), ROUND, DEFAULT, conditions),
        FAMILY.timed_terms(LayerNorm(rows=700, cols=4.0 * many + 2.0), ROUND, DEFAULT, conditions),
    ):
        assert np.all(np.diff(got.time_s) >= -1e-15)


@given(st.lists(sizes, min_size=1, max_size=6), st.sampled_from([COLD, WARM, EVENT]))
def test_scalar_equals_array(shapes: list[tuple[int, int]], conditions: Conditions) -> None:
    rows, cols = np.array(shapes).T
    together = FAMILY.timed_terms(LayerNorm(rows=rows, cols=cols), ROUND, VALUES, conditions)
    for index, (one, width) in enumerate(shapes):
        alone = FAMILY.timed_terms(LayerNorm(rows=one, cols=width), ROUND, VALUES, conditions)
        assert np.asarray(together.time_s)[index] == pytest.approx(alone.time_s, rel=1e-13)


@given(sizes, st.sampled_from([COLD, WARM, EVENT]), st.sampled_from(["fp32", "fp16", "bf16"]))
def test_every_term_is_a_time_on_every_machine(shape: tuple[int, int], conditions: Conditions, dtype: str) -> None:
    for spec in load_all():
        if spec.kind == "gpu":
            op = LayerNorm(rows=shape[0], cols=shape[1], dtype=dtype)
            got = FAMILY.timed_terms(op, Machine.of(spec, resolve_peak(op, spec)), DEFAULT, conditions)
            assert all(np.isfinite(value) and value >= 0 for value in got.adds.values())


@pytest.mark.parametrize(("name", "limit"), [("v100-pcie-32gb", 3.0), ("mi210", 6.0), ("a100-pcie-40gb", 8.0)])
def test_rows_that_were_not_fitted_agree(data_dir: Path, name: str, limit: float) -> None:
    table = read_measurements(data_dir / "measurements" / "neusight_layer_norm_fp32.csv.gz")
    found = next(found for found in table.calls if found.hardware == name)
    spec, order = hardware(name), np.random.default_rng(0).permutation(len(found))
    train, test = (
        Group(rows.op, Machine.of(spec, resolve_peak(rows.op, spec)), rows.conditions, rows.time_s)
        for rows in (found.take(order[:200]), found.take(order[200:]))
    )
    error = np.abs(np.expm1(log_ratio(FAMILY, fit(FAMILY, [train]).values, [test])))
    assert 100 * error.mean() < limit


@pytest.mark.parametrize(
    ("name", "cols", "measured_us"),
    [("a100-sxm4-80gb", 1024, 34.1), ("a100-sxm4-80gb", 16384, 506.7), ("h100-sxm5-80gb", 1024, 23.6),
     ("h100-sxm5-80gb", 4096, 66.2), ("h100-sxm5-80gb", 16384, 306.8)],
)  # fmt: skip
def test_machines_never_fitted_agree_with_cold_kernels(name: str, cols: int, measured_us: float) -> None:
    # torch's LayerNorm of 4096 fp32 rows as Liger-Kernel @ ead96b618e5c measured it: kernel only, L2 flushed
    spec = hardware(name)
    op = LayerNorm(rows=4096, cols=cols)
    got = FAMILY.formula(op, Machine.of(spec, resolve_peak(op, spec)), DEFAULT, COLD)
    assert 1e6 * got.time_s == pytest.approx(measured_us, rel=0.15)


def test_the_call_takes_longer_to_dispatch_than_a_plain_one() -> None:
    # 1.75 x 40 us; a long kernel starts 20 us before that ends: 70 - 20 = 50 us before the kernel
    assert FAMILY.timed_terms(LayerNorm(rows=1, cols=1), ROUND, VALUES, EVENT).time_s == pytest.approx(70e-6, rel=1e-3)
    kernel = FAMILY.formula(LayerNorm(rows=10**6, cols=200), ROUND, VALUES, WARM).time_s
    seen = FAMILY.timed_terms(LayerNorm(rows=10**6, cols=200), ROUND, VALUES, EVENT).time_s
    assert seen == pytest.approx(kernel + 50e-6, rel=1e-6)


def test_warm_rows_that_evict_each_other_are_unsure_where_no_such_cache_was_measured() -> None:
    sizes = {"cols": 4096, "dtype": "fp16"}

    def interval(rows: int, on: str, cache: str) -> tuple[float, float, float]:
        found = pm.predict(pm.LayerNorm(rows=rows, **sizes), on, cache=cache).estimate
        return found.time_s, found.low_s, found.high_s

    # 64 MiB of rows in the 72 MiB of an RTX 4090: as slow as on machines with small caches, or as fast as cold
    warm, low, _ = interval(8192, "rtx-4090", "warm")
    cold, cold_low, cold_high = interval(8192, "rtx-4090", "cold")
    assert low < cold < warm
    assert warm / low > 1.2 * cold / cold_low
    # 8 MiB fit beside what the call before left; an A100's cache was measured
    assert np.divide(*interval(1024, "rtx-4090", "warm")[::2]) == pytest.approx(cold / cold_high, rel=0.02)
    explained = pm.predict(pm.LayerNorm(rows=8192, **sizes), "a100-pcie-40gb", cache="warm").estimate.uncertainty
    assert "cache" not in map(str, explained.parts[0][1])
