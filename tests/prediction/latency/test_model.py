"""Which constants hold, how sure they are, and how the views of time differ."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest

import perfmodel as pm
from perfmodel.core.hardware import Hardware
from perfmodel.core.latency_table import LatencyTable
from perfmodel.core.vocabulary import Limiter
from perfmodel.errors import UsageError
from perfmodel.hardware_catalog import load_all
from perfmodel.prediction.latency.constants import constants
from perfmodel.prediction.latency.elementwise import ELSEWHERE
from perfmodel.prediction.latency.families import family
from perfmodel.prediction.latency.terms import SURFACE
from perfmodel.prediction.predict import floor_time
from perfmodel.prediction.uncertainty import Z80

ADD = pm.Elementwise(numel=10**8)


@pytest.fixture
def calibrated(simple_gpu: Hardware) -> Hardware:
    """The simple machine with constants of its own: 0.8 of the bandwidth, and a stated interval."""
    table = LatencyTable(
        {"eta": 0.8, "launch": 2e-6, "host": 30e-6, "hidden": 14e-6},
        {"torch": {"host": 40e-6}},
        {"launch": (0.7, 1.4), "mid": (0.8, 1.2), "large": (0.9, 1.1)},
        source="measured",
    )
    return dataclasses.replace(simple_gpu, latency={"elementwise": table})


def test_the_specification_comes_before_the_defaults(calibrated: Hardware, simple_gpu: Hardware) -> None:
    found = constants(family("elementwise"), calibrated)
    assert (found.calibration, found.values["eta"]) == ("calibrated", 0.8)
    assert constants(family("elementwise"), simple_gpu).calibration == "never seen"
    # a constant that the specification leaves out comes from the defaults
    assert found.values["pow"] == constants(family("elementwise"), simple_gpu).values["pow"]


def test_a_generation_that_was_measured_is_known_better_than_another() -> None:
    machine = pm.hardware("v100-sxm2-16gb")  # a sibling of the V100 in the tables, itself not in them
    assert not machine.latency
    assert pm.predict(ADD, machine).calibration == "same generation"
    strange = dataclasses.replace(machine, architecture="Maxwell")
    assert pm.predict(ADD, strange).calibration == "never seen"


def test_a_library_has_its_own_constants(calibrated: Hardware) -> None:
    def host(library: str) -> float:
        return constants(family("elementwise"), calibrated, library).values["host"]

    assert (host("torch"), host(""), host("jax")) == (40e-6, 30e-6, 30e-6)


def test_the_interval_is_that_of_the_regime(calibrated: Hardware) -> None:
    large, mid = pm.predict(ADD, calibrated), pm.predict(pm.Elementwise(numel=10**6), calibrated)
    assert (large.regime, mid.regime) == ("large", "mid")
    # 1.1 and 1.2 by the table, and what installations of PyTorch differ by
    for found, end, deviation in ((large, 1.1, ELSEWHERE.deviation[2]), (mid, 1.2, ELSEWHERE.deviation[1])):
        high = math.exp(math.hypot(math.log(end), Z80 * deviation))
        assert found.predicted_time_high_s == pytest.approx(high * found.predicted_time_s)
    tiny = pm.predict(pm.Elementwise(numel=10), calibrated)
    assert tiny.regime == "launch"
    assert tiny.predicted_limiter == "launch"


def test_no_interval_reaches_below_the_bound(calibrated: Hardware) -> None:
    tight = {"elementwise": dataclasses.replace(calibrated.latency["elementwise"], intervals={"large": (0.1, 1.1)})}
    p = pm.predict(ADD, dataclasses.replace(calibrated, latency=tight))
    assert p.predicted_time_low_s == p.bound_time_s


def test_between_events_lies_the_dispatch(calibrated: Hardware) -> None:
    kernel, event = (pm.predict(ADD, calibrated, timing=timing) for timing in ("kernel", "event"))
    assert event.predicted_time_s > kernel.predicted_time_s
    assert "host" in event.predicted_terms_s
    assert "host" not in kernel.predicted_terms_s
    # a kernel that ends within the dispatch costs nothing beyond it
    small = pm.predict(pm.Elementwise(numel=10), calibrated, timing="event")
    assert small.predicted_limiter == "host"


@pytest.mark.parametrize("library", ["", "torch"])
def test_a_loop_of_many_calls_waits_for_the_host_that_dispatches_each(library: str) -> None:
    def step(tensors: int, *, algorithm: str = "loop", timing: str = "event", parameters: float = 1e6) -> pm.Prediction:
        op = pm.OptimizerAdamw(parameters=parameters, algorithm=algorithm, num_tensors=tensors)
        return pm.predict(op, "h100", timing=timing, library=library)

    # 8 passes over each of 100 tensors are 800 calls, of which a host takes 5 us and more
    assert step(100).predicted_time_high_s > step(100).predicted_time_s > 800 * 5e-6
    assert step(100).predicted_limiter == "host"
    assert step(200).predicted_time_s == pytest.approx(2 * step(100).predicted_time_s, rel=0.01)
    # as foreach it is 8 calls, fused one
    fused, foreach, loop = (step(100, algorithm=name).predicted_time_s for name in ("fused", "foreach", "loop"))
    assert fused < foreach < 0.1 * loop
    # the device alone does not wait, and long kernels hide the host
    assert step(100, timing="kernel").predicted_time_s < 0.5 * loop
    long = [step(4, timing=timing, parameters=4e9) for timing in ("event", "kernel")]
    assert long[0].predicted_time_s == pytest.approx(float(long[1].predicted_time_s), rel=0.01)
    together = pm.predict(pm.OptimizerAdamw(parameters=1e6, algorithm="loop", num_tensors=np.array([100, 200])), "h100",
                          timing="event", library=library)  # fmt: skip
    assert together.predicted_time_s == pytest.approx([float(step(n).predicted_time_s) for n in (100, 200)])


def test_warm_data_may_beat_the_cold_bound_and_never_what_the_caches_cannot_hold(calibrated: Hardware) -> None:
    fits, large = pm.Elementwise(numel=500_000), pm.Elementwise(numel=5_000_000)  # 6 MB and 60 MB, beside 10 MB of L2
    warm = pm.predict(fits, calibrated, cache="warm")
    assert warm.predicted_time_s <= pm.predict(fits, calibrated).predicted_time_s
    # 50 of the 60 MB have to come from device memory at 1 TB/s
    assert pm.predict(large, calibrated, cache="warm").predicted_time_s >= 50e-6


@pytest.mark.parametrize("wrong", [{"timing": "wall"}, {"cache": "lukewarm"}])
def test_unknown_views_are_named(calibrated: Hardware, wrong: dict[str, str]) -> None:
    with pytest.raises(UsageError, match="unknown"):
        pm.predict(ADD, calibrated, **wrong)


def test_a_cpu_and_an_operator_without_a_closed_form_go_to_the_roofline(simple_gpu: Hardware) -> None:
    cpu = dataclasses.replace(simple_gpu, kind="cpu")
    assert pm.predict(ADD, cpu).family == "roofline"
    copy = pm.predict(pm.Transpose(rows=4096, cols=4096), simple_gpu)
    assert copy.family == "roofline"
    assert copy.predicted_time_high_s > copy.predicted_time_s


OPERATORS = (
    pm.Gemm(m=300, n=512, k=1000, dtype="bf16"),
    pm.Gemm(m=300, n=512, k=1000, dtype="fp8"),
    pm.Gemm(m=300, n=512, k=1000, batch=7),
    pm.Elementwise(numel=123_456),
    pm.LayerNorm(rows=100, cols=1000),
    pm.RmsNorm(rows=100, cols=1000, dtype="bf16"),
    pm.Softmax(rows=100, cols=1000),
    pm.Reduction(rows=100, cols=1000),
    pm.Attention(heads=16, seq_q=777, head_dim=128, causal=True, dtype="bf16"),
    pm.Attention(heads=16, kv_heads=2, seq_q=1, seq_kv=777, head_dim=128, dtype="bf16"),
    pm.Attention(heads=16, seq_q=777, head_dim=64, algorithm="unfused"),
    pm.Conv2d(n=8, c=64, h=56, w=56, k=64, r=3, s=3, padding=1),
    pm.AllReduce(bytes=10**6, num_gpus=4),
    pm.AllGather(bytes=10**6, num_gpus=4),
    pm.ReduceScatter(bytes=10**6, num_gpus=4),
    pm.Alltoall(bytes=10**6, num_gpus=4),
    pm.Embedding(tokens=512, vocab=50_000, dim=1024),
    pm.Transpose(rows=1000, cols=1000),
    pm.Memcpy(bytes=10**7),
    pm.LinearCrossEntropy(rows=4096, hidden=1024, vocab=32_000, dtype="bf16"),
)


@pytest.mark.waiting
@pytest.mark.parametrize("op", OPERATORS, ids=lambda op: f"{op.op}-{op.dtype}")
def test_on_every_machine_every_prediction_holds_together(op: pm.Operator) -> None:
    for machine in load_all():
        try:
            predictions = [
                pm.predict(op, machine, timing=t, cache=c) for t in ("kernel", "event") for c in ("cold", "warm")
            ]
        except UsageError:
            continue  # a dtype or a link that the machine lacks
        for p in predictions:
            where = (machine.name, p.timing, p.cache)
            time = float(p.predicted_time_s)
            assert 0 < time < 1, where
            assert sum(map(float, p.predicted_terms_s.values())) == pytest.approx(time), where
            # A residual surface may take time off.
            parts = [float(time) for term, time in p.predicted_terms_s.items() if term != SURFACE]
            assert min(parts) >= -1e-15, where
            assert float(p.predicted_time_low_s) <= time <= float(p.predicted_time_high_s), where
            assert p.largest_term == max(p.predicted_terms_s, key=lambda term: float(p.predicted_terms_s[term])), where
            assert isinstance(p.predicted_limiter, Limiter), where
        cold = predictions[0]
        assert float(cold.predicted_time_s) >= float(floor_time(op, machine)) * (1 - 1e-12)


@pytest.mark.parametrize("op", OPERATORS, ids=lambda op: f"{op.op}-{op.dtype}")
def test_scalar_equals_array(op: pm.Operator) -> None:
    machine = pm.hardware("h100-sxm5-80gb")
    sizes = {k: v for k, v in op.params().items() if isinstance(v, (int, float)) and not isinstance(v, bool)}
    first = next(iter(sizes))
    array = dataclasses.replace(op, **{first: np.array([sizes[first], 2 * sizes[first]], dtype=float)})
    for timing in ("kernel", "event"):
        many, one = pm.predict(array, machine, timing=timing), pm.predict(op, machine, timing=timing)
        assert np.ravel(many.predicted_time_s)[0] == pytest.approx(one.predicted_time_s, rel=1e-12)
        assert np.ravel(many.predicted_limiter)[0] == one.predicted_limiter
        assert np.ravel(many.largest_term)[0] == one.largest_term
        assert np.ravel(many.predicted_time_low_s)[0] == pytest.approx(one.predicted_time_low_s, rel=1e-12)


def test_a_dtype_that_nobody_measured_is_known_like_a_machine_that_nobody_measured() -> None:
    machine = pm.hardware("v100-pcie-32gb")  # its rows are in fp32
    fp32, fp64 = (pm.LayerNorm(rows=10**5, cols=2048, dtype=dtype) for dtype in ("fp32", "fp64"))
    measured, other = pm.predict(fp32, machine), pm.predict(fp64, machine)
    assert (measured.calibration, other.calibration) == ("calibrated", "never seen")
    assert (
        other.predicted_time_high_s / other.predicted_time_s
        > measured.predicted_time_high_s / measured.predicted_time_s
    )
    assert "no row in fp64" in other.prediction_basis
    # fp16 and bf16 run alike
    h100 = pm.hardware("h100-sxm5-80gb")
    assert {pm.predict(pm.Gemm(m=512, n=512, k=512, dtype=d), h100).calibration for d in ("fp16", "bf16")} == {
        "calibrated"
    }


def test_the_output_says_whether_a_library_has_constants_of_its_own() -> None:
    machine, op = pm.hardware("h100-sxm5-80gb"), pm.Gemm(m=64, n=64, k=64, dtype="bf16")
    assert pm.predict(op, machine, library="sglang").prediction_basis.endswith("those of sglang")
    assert (
        "none of foo's own (known: sglang, torch, trtllm, vidur, vllm)"
        in pm.predict(op, machine, library="foo").prediction_basis
    )


@pytest.mark.parametrize(
    "op",
    [
        pm.IndexSelect(rows=10_321, cols=1024, table=2**20),
        pm.Gather(numel=3_045_951, table=2**24),
        pm.Transpose(rows=2048, cols=2048, dtype="bf16"),
    ],
    ids=lambda op: op.op,
)
def test_warm_caches_hold_up_no_kernel_of_pytorch_that_reads_once(op: pm.Operator) -> None:
    for machine in load_all():
        if machine.kind == "gpu":
            cold, warm = (pm.predict(op, machine, library="torch", cache=c).predicted_time_s for c in ("cold", "warm"))
            assert float(warm) <= float(cold) * (1 + 1e-9), machine.name
