"""Elementwise kernels and the host's dispatch: worked examples, limits, and agreement with measurements."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfmodel.accuracy.fit import Group, fit, log_ratio
from perfmodel.core.vocabulary import CacheState
from perfmodel.hardware_catalog import hardware, hardware_names, load_all
from perfmodel.operators.elementwise import KINDS, Elementwise
from perfmodel.prediction.ceilings import resolve_peak
from perfmodel.prediction.conditions import Conditions
from perfmodel.prediction.latency.elementwise import FAMILY, call_cost
from perfmodel.prediction.latency.family import Family, Values
from perfmodel.prediction.latency.machine import Machine
from perfmodel.prediction.latency.streams import surviving_share
from perfmodel.prediction.predict import predict
from perfmodel.records.measurements import read_measurements

#: 100 SMs at 1 GHz, 128 lanes each (25.6 TFLOP/s), 1 TB/s, L2 of 10 MB
ROUND = Machine(100.0, 1e9, 25.6e12, "vector", "fp32", 25.6e12, 1e12, 1e7, np.inf)
VALUES = {
    "eta": 0.8, "launch": 2e-6, "feed": 0.5, "fill": 0.6, "write": 1.5, "left": 0.4, "pow": 128.0, "wrapped": 1.2,
    "host": 30e-6, "hidden": 10e-6, "issue": 0.5}  # fmt: skip
COLD, WARM = Conditions(), Conditions(cache="warm")
EVENT = Conditions(timing="event", cache="warm", library="torch", version="2.1")
sizes = st.integers(1, 10**10)


def default(family: Family) -> Values:
    return {constant.name: constant.default for constant in family.all_constants}


def test_a_long_stream_by_hand() -> None:
    # add of 1e8 fp32: reads 800 MB, writes 400 MB that cost 1.5 times as much: 1.4 GB at 0.8 TB/s = 1.75 ms
    got = FAMILY.formula(Elementwise(numel=10**8), ROUND, VALUES, COLD)
    assert got.adds["hbm"] == pytest.approx(1.75e-3)
    # 1e8 operations on 12,800 lanes of 1 GHz: 7.8 us, nothing beside the stream
    assert got.alone["math"] == pytest.approx(7.8125e-6)
    assert got.time_s == pytest.approx(1.75e-3 + 2e-6)


def test_pow_is_bound_by_arithmetic_by_hand() -> None:
    # 1e8 x 128 cycles / (12,800 lanes x 1 GHz) = 1 ms; with a scalar 400 MB + 1.5 x 400 MB at 0.8 TB/s = 1.25 ms
    got = FAMILY.formula(Elementwise(numel=10**8, kind="pow", num_inputs=1), ROUND, VALUES, COLD)
    assert got.time_s == pytest.approx((1.0**6 + 1.25**6) ** (1 / 6) * 1e-3 + 2e-6)
    slow = FAMILY.formula(Elementwise(numel=10**8, kind="pow"), ROUND, {**VALUES, "pow": 1280.0}, COLD)
    assert slow.adds["math"] == pytest.approx(10e-3)
    assert slow.adds["hbm"] == 0.0


def test_functions_of_fp64_are_instructions_at_the_rate_of_fp64_by_hand() -> None:
    # 2 lanes of an SM for fp64, 0.4 TFLOP/s: 85 instructions of pow take 1e8 elements 42.5 ms
    double = replace(ROUND, dtype="fp64", peak_flop_per_s=0.4e12)
    slow = FAMILY.formula(Elementwise(numel=10**8, kind="pow", dtype="fp64"), double, VALUES, COLD)
    assert slow.adds["math"] == pytest.approx(42.5e-3)
    assert slow.adds["hbm"] == 0.0
    one = FAMILY.formula(Elementwise(numel=10**8, kind="add", dtype="fp64"), double, VALUES, COLD)
    assert one.alone["math"] == pytest.approx(0.5e-3)


@pytest.mark.parametrize("kind", ["exp", "log", "tanh", "gelu", "silu", "pow"])
def test_functions_of_fp64_take_a_geforce_longer_than_their_bytes_and_nobody_measured_them(kind: str) -> None:
    for name in ("rtx-4090", "t4"):
        op = Elementwise(numel=10**8, kind=kind, dtype="fp64", num_inputs=1)
        slow, fp32 = (predict(one, hardware(name)) for one in (op, op.changed(dtype="fp32")))
        # the traffic is twice that of fp32, the rate of instructions 1/64 or 1/32
        assert slow.predicted_limiter == "compute"
        assert slow.limiter == fp32.limiter == "hbm"
        assert slow.flop == fp32.flop
        assert slow.predicted_time_s > 2.4 * fp32.predicted_time_s
        assert slow.predicted_time_high_s > 1.5 * slow.predicted_time_s
    # where fp64 runs at half of the rate, its bytes hide the functions
    assert predict(op.changed(kind="exp"), hardware("h100")).predicted_limiter == "hbm"


def test_every_machine_has_a_time_for_functions_of_fp64_unless_it_has_none() -> None:
    for name in hardware_names():
        machine = hardware(name)
        for op in (
            Elementwise(numel=10**6, kind="exp", dtype="fp64"),
            Elementwise(numel=10**6, dtype="fp64", kind="fill"),
        ):
            if machine.find_peak("fp64", "vector") is not None:
                assert np.isfinite(float(predict(op, machine).predicted_time_s)), name
    together = Elementwise(numel=np.array([1e3, 1e8]), kind="exp", dtype="fp64")
    apart = [float(predict(together.changed(numel=n), hardware("t4")).predicted_time_high_s) for n in (1e3, 1e8)]
    assert predict(together, hardware("t4")).predicted_time_high_s == pytest.approx(apart)


def test_addresses_take_as_long_in_every_dtype_by_hand() -> None:
    # 0.85 cycles x 1e8 on 100 SMs of 1 GHz: 0.85 ms; in 16 bits 200 MB + 1.5 x 200 MB at 0.8 TB/s are 0.625 ms, in fp32
    # twice as much, so that these are limited by their traffic again
    for dtype, traffic_ms in (("bf16", 0.625), ("fp32", 1.25)):
        op = Elementwise(numel=10**8, kind="neg", dtype=dtype, strided=True)
        got = FAMILY.formula(op, ROUND, VALUES, COLD).time_s - 2e-6
        assert got == pytest.approx((0.85**6 + traffic_ms**6) ** (1 / 6) * 1e-3)
        plain = FAMILY.formula(replace(op, strided=False), ROUND, VALUES, COLD).time_s - 2e-6
        assert plain == pytest.approx(traffic_ms * 1e-3, rel=1e-3)


def test_pow_has_no_packed_instruction() -> None:
    # the peak of CDNA 2 counts two results an instruction: half of the lanes, twice the time of arithmetic
    packed = replace(ROUND, packed=2.0)
    plain, half = (FAMILY.formula(Elementwise(numel=10**8, kind="pow"), on, VALUES, COLD) for on in (ROUND, packed))
    assert half.alone["math"] == pytest.approx(2.0 * float(plain.alone["math"]))


def test_pytorch_widens_element_by_element() -> None:
    def time_s(first: str, last: str, library: str) -> float:
        op = Elementwise(numel=10**8, kind="cast", dtype=first, out_dtype=last)
        return float(np.asarray(predict(op, hardware("h100"), library=library).predicted_time_s))

    wide = time_s("bf16", "fp32", "torch")
    least = 0.82 * 10**8 / (132 * 1.98e9)
    assert least < wide < 1.2 * least
    assert time_s("fp32", "bf16", "torch") < 0.8 * wide  # whole vectors, as many bytes
    assert time_s("bf16", "fp32", "triton") < 0.8 * wide


def test_gelu_issues_from_every_scheduler_whatever_the_lanes() -> None:
    # 27.5 instructions at 0.69 of 128 slots in a clock; 13 of them need a lane of fp32, which 64 lanes do sooner
    op = Elementwise(numel=10**6, kind="gelu", dtype="bf16")
    for lanes in (64.0, 128.0):
        machine = replace(ROUND, vector_flop_per_s=2.0 * lanes * ROUND.sm_count * ROUND.clock_hz)
        got = FAMILY.formula(op, machine, VALUES, Conditions()).alone["math"]
        assert float(got) == pytest.approx(10**6 * 27.5 / 0.69 / (128.0 * ROUND.sm_count * ROUND.clock_hz))


def test_data_that_stay_in_l2_by_hand() -> None:
    # 1e5 x 12 B = 1.2 MB of 10 MB all stay; traffic counts 1.4 MB, at 0.5 x 64 B x 100 SM x 1 GHz = 3.2 TB/s
    got = FAMILY.formula(Elementwise(numel=10**5), ROUND, VALUES, WARM)
    assert got.adds["l2"] == pytest.approx(1.4e6 / 3.2e12)
    assert got.adds["hbm"] == 0.0
    # between 0.6 and 1.1 of the capacity ever less: at 0.85 one half
    assert surviving_share(8.5e6, ROUND, VALUES, WARM) == pytest.approx(0.5)
    assert surviving_share(1.2e7, ROUND, VALUES, WARM) == 0.0
    assert surviving_share(1.0, ROUND, VALUES, COLD) == 0.0
    assert surviving_share(1.0, replace(ROUND, l2_bytes=0.0), VALUES, WARM) == 0.0


def test_an_operand_that_was_just_written_lies_in_l2() -> None:
    # a gated activation in two calls: the product reads 2 tensors and writes 1; the activation before had 2
    machine = replace(ROUND, l2_bytes=8e6)
    for numel, share in ((10**6, 1 / (2 + VALUES["write"])), (10**8, 0.0)):
        terms = [
            FAMILY.formula(
                Elementwise(numel=numel, kind="mul", dtype="bf16", fresh=fresh), machine, VALUES, Conditions()
            )
            for fresh in (False, True)
        ]
        plain, fresh = (float(one.alone["hbm"]) for one in terms)
        assert fresh == pytest.approx((1.0 - share) * plain)
        assert float(terms[1].time_s) <= float(terms[0].time_s)


@pytest.mark.parametrize("dtypes", [{}, {"dtype": "fp64", "out_dtype": "bf16"}])
def test_a_call_that_reads_nothing_has_no_operand_in_l2(dtypes: dict[str, str]) -> None:
    calls = (Elementwise(numel=10**6, kind="fill", fresh=fresh, **dtypes) for fresh in (False, True))
    plain, fresh = (FAMILY.formula(op, ROUND, VALUES, COLD).alone["hbm"] for op in calls)
    assert fresh == plain


def test_l2_is_not_slower_than_device_memory() -> None:
    slow = {**VALUES, "feed": 0.03}
    op = Elementwise(numel=10**5)
    assert FAMILY.formula(op, ROUND, slow, WARM).time_s == pytest.approx(FAMILY.formula(op, ROUND, slow, COLD).time_s)


def test_a_small_kernel_hides_behind_its_dispatch() -> None:
    # kernel 2 us: done long before the host is, so that the event sees the 30 us of the host
    got = FAMILY.timed_terms(Elementwise(numel=1), ROUND, VALUES, EVENT)
    assert got.time_s == pytest.approx(30e-6, rel=1e-3)
    # a long one starts 30 - 10 = 20 us after the first event, and all of it shows: 1752 us as above
    got = FAMILY.timed_terms(Elementwise(numel=10**8), ROUND, VALUES, EVENT)
    assert got.time_s == pytest.approx(1772e-6, rel=1e-6)
    assert got.adds["host"] == pytest.approx(20e-6, rel=1e-3)


def test_a_kernel_hides_behind_no_more_than_the_whole_dispatch() -> None:
    got = FAMILY.timed_terms(Elementwise(numel=10**8), ROUND, {**VALUES, "hidden": 90e-6}, EVENT)
    assert got.time_s == pytest.approx(1752e-6, rel=1e-6)


def test_a_layer_or_a_scalar_takes_longer_to_dispatch() -> None:
    assert call_cost(Elementwise(numel=1, kind="mul"), VALUES) == 1.0
    assert call_cost(Elementwise(numel=1, kind="mul", num_inputs=1), VALUES) == 1.2
    assert call_cost(Elementwise(numel=1, kind="gelu"), VALUES) == 1.2
    assert call_cost(Elementwise(numel=1, kind="tanh"), VALUES) == 1.0
    got = FAMILY.timed_terms(Elementwise(numel=1, kind="mul", num_inputs=1), ROUND, VALUES, EVENT)
    assert got.time_s == pytest.approx(36e-6, rel=1e-3)


def test_half_the_bytes_take_half_the_time() -> None:
    wide, narrow = (FAMILY.formula(Elementwise(numel=10**9, dtype=d), ROUND, VALUES, COLD) for d in ("fp32", "bf16"))
    assert narrow.adds["hbm"] == pytest.approx(wide.adds["hbm"] / 2)


@pytest.mark.parametrize("conditions", [COLD, WARM, EVENT])
@pytest.mark.parametrize("kind", KINDS)
def test_more_elements_never_take_less_time(kind: str, conditions: Conditions) -> None:
    numel = np.unique(np.geomspace(1, 1e11, 400).round())
    got = FAMILY.timed_terms(Elementwise(numel=numel, kind=kind), ROUND, default(FAMILY), conditions)
    assert np.all(np.diff(got.time_s) >= -1e-15)


@given(st.lists(sizes, min_size=1, max_size=8), st.sampled_from(sorted(KINDS)), st.sampled_from([COLD, WARM, EVENT]))
def test_scalar_equals_array(numel: list[int], kind: str, conditions: Conditions) -> None:
    together = FAMILY.timed_terms(Elementwise(numel=np.array(numel), kind=kind), ROUND, VALUES, conditions)
    for index, one in enumerate(numel):
        alone = FAMILY.timed_terms(Elementwise(numel=one, kind=kind), ROUND, VALUES, conditions)
        assert np.asarray(together.time_s)[index] == pytest.approx(alone.time_s, rel=1e-13)
        for name, value in alone.adds.items():
            assert np.broadcast_to(together.adds[name], (len(numel),))[index] == pytest.approx(
                value, rel=1e-9, abs=1e-18
            )


@given(sizes, st.sampled_from(sorted(KINDS)), st.sampled_from([COLD, WARM, EVENT]))
def test_every_term_is_a_time_on_every_machine(numel: int, kind: str, conditions: Conditions) -> None:
    for spec in load_all():
        if spec.kind == "gpu":
            op = Elementwise(numel=numel, kind=kind)
            got = FAMILY.timed_terms(op, Machine.of(spec, resolve_peak(op, spec)), default(FAMILY), conditions)
            assert all(np.isfinite(value) and value >= 0 for value in got.adds.values())


@pytest.mark.parametrize(("name", "all_sizes", "long"), [("v100-pcie-32gb", 3.0, 1.5), ("p4", 3.0, 1.0)])
def test_rows_that_were_not_fitted_agree(data_dir: Path, name: str, all_sizes: float, long: float) -> None:
    table = read_measurements(data_dir / "measurements" / "neusight_elementwise_fp32.csv.gz")
    spec, rng = hardware(name), np.random.default_rng(0)
    train, test = [], []
    for found in (found for found in table.calls if found.hardware == name):
        order = rng.permutation(len(found))
        for part, chosen in ((train, order[:30]), (test, order[30:330])):
            rows = found.take(chosen)
            part.append(Group(rows.op, Machine.of(spec, resolve_peak(rows.op, spec)), rows.conditions, rows.time_s))
    error = 100 * np.abs(np.expm1(log_ratio(FAMILY, fit(FAMILY, train).values, test)))
    time_s = np.concatenate([group.time_s for group in test])
    assert error.mean() < all_sizes
    assert error[time_s > 1e-4].mean() < long


@pytest.mark.parametrize("name", sorted(hardware_names()))
def test_no_long_stream_is_faster_than_any_that_was_measured(name: str) -> None:
    """The best sustained share of the catalog is 92 %; written bytes are up to 15 % cheaper than read ones."""
    machine = hardware(name)
    if machine.kind != "gpu":
        pytest.skip("a CPU uses the roofline")
    for dtype in ("fp32", "bf16"):
        prediction = predict(Elementwise(numel=10**9, kind="add", dtype=dtype), machine)
        assert 0.5 < prediction.bound_time_s / prediction.predicted_time_s < 0.975


def test_a_serving_layers_addition_saves_the_same_bytes_at_any_size_beyond_what_stays_in_l2() -> None:
    """Vidur's vLLM on H100: left C / copies of 240 MB and of 480."""
    saved = []
    for numel in (40_000_000, 80_000_000):
        op = Elementwise(numel=numel, kind="add", dtype="fp16")
        warm, cold = (
            predict(op, hardware("h100-sxm5-80gb"), library="vidur", cache=cache).predicted_time_s
            for cache in (CacheState.WARM, CacheState.COLD)
        )
        saved.append(cold - warm)
    assert saved[0] > 1e-6
    assert saved[1] == pytest.approx(saved[0], rel=0.05)
