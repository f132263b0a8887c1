"""Calls unlike those that the constants were fitted on have a wider interval, and say why."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import perfmodel as pm
from perfmodel.accuracy.measured import MeasuredCalls
from perfmodel.accuracy.own_rows import calibrate_calls
from perfmodel.core.latency_table import REGIMES
from perfmodel.core.vocabulary import CacheState, ErrorSource, Timing
from perfmodel.prediction.latency.attention import beyond
from perfmodel.prediction.latency.families import family, family_names
from perfmodel.prediction.summary import summarize
from perfmodel.prediction.uncertainty import Z80

H100 = "h100-sxm5-80gb"


def product(m: int, n: int, k: int) -> pm.Gemm:
    return pm.Gemm(m=m, n=n, k=k, dtype="bf16")


def attention(queries: int, keys: int, head_dim: int) -> pm.Attention:
    return pm.Attention(
        batch=1, heads=32, seq_q=queries, seq_kv=keys, head_dim=head_dim, causal=True, dtype="bf16"
    )  # fmt: skip


def convolution(**sizes: int) -> pm.Conv2d:
    return pm.Conv2d(**{"n": 16, "h": 28, "w": 28, "k": 136, "r": 3, "s": 3, "padding": 1, "dtype": "bf16", **sizes})


def reduced(devices: int) -> pm.AllReduce:
    return pm.AllReduce(bytes=2.0**30, num_gpus=devices, dtype="bf16")


def gathered(devices: int) -> pm.AllGather:
    return pm.AllGather(bytes=2.0**30, num_gpus=devices, dtype="bf16")


def half_widths(op: pm.Operator, hardware: str = H100, library: str = "torch") -> tuple[float, float]:
    """Return ln(time / low) and ln(high / time)."""
    found = pm.predict(op, hardware, library=library)
    time = found.predicted_time_s
    return math.log(time / found.predicted_time_low_s), math.log(found.predicted_time_high_s / time)


def not_seen(op: pm.Operator, hardware: str = H100, library: str = "torch") -> set[ErrorSource]:
    return set(pm.predict(op, hardware, library=library).uncertainty)


@pytest.mark.parametrize(
    ("known", "beyond", "library", "hardware"),
    [
        (product(4096, 4096, 4096), product(4096, 4096, 4097), "torch", H100),
        (product(4096, 50304, 768), product(4096, 50257, 768), "torch", "b200-sxm-180gb"),
        (product(4096, 4096, 4096), product(4096, 4100, 4096), "torch", "mi300x"),
        (pm.Gemm(m=64, n=64, k=64, dtype="fp8"), pm.Gemm(m=64, n=64, k=72, dtype="fp8"), "vllm", H100),
        (attention(512, 512, 128), attention(512, 512, 80), "torch", H100),
        (attention(512, 4096, 128), attention(512, 4095, 128), "torch", H100),
        (convolution(c=128, stride=2), convolution(c=136, stride=2), "torch", H100),
        (convolution(c=136), convolution(c=136, groups=17), "torch", H100),
        (convolution(c=64, dtype="fp32"), convolution(c=64, dtype="fp32", stride=2), "torch", "v100-pcie-32gb"),
        (convolution(c=64, dtype="fp32"), convolution(c=64, dtype="fp32", r=1, s=1), "torch", "t4"),
        (pm.Elementwise(numel=10**7), pm.Elementwise(numel=10**7, strided=True), "torch", H100),
        (pm.Elementwise(numel=10**7), pm.Elementwise(numel=10**7, kind="fill"), "torch", H100),
        (gathered(8), gathered(16), "nccl", "gb200-nvl72"),
    ],
)  # fmt: skip
def test_sizes_that_nobody_measured_are_named(
    known: pm.Operator, beyond: pm.Operator, library: str, hardware: str
) -> None:
    assert ErrorSource.EXTRAPOLATION not in not_seen(known, hardware, library)
    assert ErrorSource.EXTRAPOLATION in not_seen(beyond, hardware, library)
    of_known, of_beyond = half_widths(known, hardware, library), half_widths(beyond, hardware, library)
    assert of_beyond[1] > of_known[1]


def test_reductions_in_a_switch_that_nobody_measured_are_less_sure() -> None:
    assert ErrorSource.LINK in not_seen(reduced(8), "b200-sxm-180gb", "nccl")
    assert ErrorSource.LINK not in not_seen(reduced(2), "b200-sxm-180gb", "nccl")  # nothing to reduce in it
    assert ErrorSource.LINK not in not_seen(gathered(8), "b200-sxm-180gb", "nccl")
    assert ErrorSource.LINK not in not_seen(reduced(8), H100, "nccl")


@pytest.mark.parametrize(("limited", "cool"), [("l4", "l20"), ("h100-pcie-80gb", "h800-sxm5-80gb")])
def test_products_on_an_unmeasured_board_of_few_watts_are_less_sure(limited: str, cool: str) -> None:
    op = product(8192, 8192, 8192)
    assert ErrorSource.POWER in not_seen(op, limited)
    assert ErrorSource.POWER not in not_seen(op, cool)
    assert sum(half_widths(op, limited)) > 1.3 * sum(half_widths(op, cool))
    assert ErrorSource.POWER not in not_seen(product(1, 8192, 8192), limited), "it waits for memory"


def test_a_board_of_few_watts_that_was_measured_is_sure_of_its_energy() -> None:
    machine = replace(pm.hardware(H100), tdp_w=300.0)
    found = pm.predict(product(8192, 8192, 8192), machine, library="torch")
    assert ErrorSource.POWER not in set(found.uncertainty)


def test_exchanges_between_hosts_are_less_sure_than_in_one() -> None:
    widths = [sum(half_widths(reduced(devices), "gb200-nvl72", "nccl")) for devices in (8, 16, 72)]
    assert sorted(widths) == widths
    assert widths[-1] > 1.1 * widths[0]


@pytest.mark.parametrize(("bridged", "switched"), [("h100-pcie-80gb", "h800-sxm5-80gb"), ("a40", "a100-sxm4-40gb")])
def test_a_bridge_is_another_link_than_the_switch_of_the_tables(bridged: str, switched: str) -> None:
    assert ErrorSource.LINK in not_seen(reduced(2), bridged, "nccl")
    assert ErrorSource.LINK not in not_seen(reduced(2), switched, "nccl")
    assert "nobody measured exchanges over this kind of link" in " ".join(
        summarize([pm.predict(reduced(2), bridged, library="nccl")])
    )


def test_a_bridge_between_four_cards_has_no_switch_that_reduces() -> None:
    four = pm.AllReduce(bytes=2.0**30, num_gpus=4, dtype="bf16")
    found = pm.predict(four, "h200-nvl-141gb", library="nccl")
    assert found.bound_time_s == pytest.approx(2.0 * 3.0 / 4.0 * 2.0**30 / 450e9, rel=1e-3)


@pytest.mark.parametrize(
    "op",
    [
        product(1, 4096, 4097),  # a product of one row has a kernel of its own
        pm.Gemm(m=255, n=255, k=1001, dtype="fp32"),  # as NeuSight's tables, which hold such sizes
        attention(511, 511, 128),  # no mask tensor
        convolution(c=64, dtype="fp32", r=1, s=1, padding=0),  # in fp32 an H100 has rows of such filters
    ],
)
def test_odd_sizes_that_take_usual_kernels_are_no_extrapolation(op: pm.Operator) -> None:
    assert ErrorSource.EXTRAPOLATION not in not_seen(op)


def test_the_variance_adds_to_that_of_the_shape_by_hand() -> None:
    found = pm.predict(product(4096, 4096, 4097), H100, library="torch")
    variances = found.uncertainty.variances("large")
    assert math.sqrt(variances[ErrorSource.EXTRAPOLATION]) == family("gemm_bf16").doubts[0].deviation[2]
    middle = (sum(half_widths(product(4096, 4096, 4097))) / 2.0 / Z80) ** 2
    assert middle == pytest.approx(sum(variances.values()), rel=0.02)


def added(one: tuple[float, ...], *others: tuple[float, ...]) -> tuple[float, ...]:
    """Return the deviation of independent errors: their variances add."""
    return tuple(math.hypot(*values) for values in zip(one, *others, strict=True))


def test_two_doubts_about_a_call_add_up() -> None:
    assert not_seen(reduced(2), "h100-pcie-80gb", "nccl") >= {ErrorSource.LINK, ErrorSource.INSTALLATION}
    masked, padded, *_ = beyond.BEYOND  # rows of a mask off vectors, and heads of 72 columns
    found, alone = (pm.predict(attention(100, keys, 72), H100, library="torch") for keys in (201, 100))
    for regime, both, one in zip(REGIMES, added(masked.deviation, padded.deviation), padded.deviation, strict=True):
        assert math.sqrt(found.uncertainty.variances(regime)[ErrorSource.EXTRAPOLATION]) == pytest.approx(both)
        assert math.sqrt(alone.uncertainty.variances(regime)[ErrorSource.EXTRAPOLATION]) == pytest.approx(one)


@given(
    channels=st.lists(st.sampled_from([8, 24, 64, 256]), min_size=2, max_size=6),
    filters=st.sampled_from([1, 3, 5]),
    timing=st.sampled_from(["kernel", "event"]),
)
def test_doubts_about_some_points_of_a_sweep_add_up_as_they_do_alone(
    channels: list[int], filters: int, timing: str
) -> None:
    def convolved(c: object) -> pm.Prediction:
        op = convolution(c=c, r=filters, s=filters, padding=filters // 2)  # type: ignore[arg-type]
        return pm.predict(op, H100, library="torch", timing=timing)

    many = convolved(np.array(channels, float))
    sources = many.uncertainty.variances(np.asarray(many.regime))
    for place, one in enumerate(channels):
        alone = convolved(one)
        assert np.asarray(many.predicted_time_high_s)[place] == pytest.approx(alone.predicted_time_high_s)
        for source, variance in alone.uncertainty.variances(alone.regime).items():
            assert np.asarray(sources[source])[place] == pytest.approx(variance)


@given(k=st.lists(st.integers(2, 5000), min_size=2, max_size=6), batch=st.sampled_from([1, 3]))
def test_each_point_of_a_sweep_has_its_own_interval(k: list[int], batch: int) -> None:
    many = pm.predict(pm.Gemm(m=640, n=512, k=np.array(k, float), batch=batch, dtype="bf16"), H100, library="torch")
    sources = many.uncertainty.variances(np.asarray(many.regime))
    for place, one in enumerate(k):
        alone = pm.predict(pm.Gemm(m=640, n=512, k=one, batch=batch, dtype="bf16"), H100, library="torch")
        assert np.asarray(many.predicted_time_high_s)[place] == pytest.approx(alone.predicted_time_high_s)
        assert np.asarray(many.predicted_time_low_s)[place] == pytest.approx(alone.predicted_time_low_s)
        for source, variance in alone.uncertainty.variances(alone.regime).items():
            assert np.asarray(sources[source])[place] == pytest.approx(variance)


def test_every_doubt_says_by_how_much() -> None:
    doubts = [doubt for name in family_names() for doubt in family(name).doubts]
    assert doubts
    assert all(0.0 < one < 2.0 for doubt in doubts for one in doubt.deviation)
    assert all(len(doubt.deviation) == len(REGIMES) for doubt in doubts)


def test_releases_of_sglang_that_differ_widen_the_interval_of_none_that_is_named() -> None:
    def reduced(library: str, message: float = 65536.0) -> pm.Prediction:
        return pm.predict(pm.AllReduce(bytes=message, num_gpus=8, dtype="bf16"), H100, library=library)

    slow, fast, any_of_them = (reduced(f"sglang{release}") for release in ("-0.5.9", "-0.5.14", ""))
    assert fast.predicted_time_s < any_of_them.predicted_time_s < slow.predicted_time_s
    assert ErrorSource.RELEASE in any_of_them.uncertainty
    assert ErrorSource.RELEASE not in {*slow.uncertainty, *fast.uncertainty, *reduced("nccl").uncertainty}
    assert ErrorSource.RELEASE not in reduced("sglang", 2.0**26).uncertainty
    assert any_of_them.predicted_time_low_s < fast.predicted_time_s
    assert any_of_them.predicted_time_high_s > slow.predicted_time_s


def test_a_machine_whose_table_knows_such_calls_has_the_usual_interval() -> None:
    machine = pm.hardware(H100)
    table = machine.latency["gemm_bf16"]
    known = replace(table, deviations={**table.deviations, ErrorSource.EXTRAPOLATION: (0.0,) * len(REGIMES)})
    machine = replace(machine, latency={**machine.latency, "gemm_bf16": known})
    found = pm.predict(product(4096, 4096, 4097), machine, library="torch")
    assert ErrorSource.EXTRAPOLATION not in set(found.uncertainty)


@pytest.mark.waiting
def test_ten_rows_of_ones_own_tell_of_such_calls() -> None:
    machine = pm.hardware(H100)

    def calibrated(k: np.ndarray) -> set[ErrorSource]:
        sizes = np.linspace(300.0, 5000.0, k.size).round()
        op = pm.Gemm(m=sizes, n=512 + 8 * np.arange(k.size), k=k, dtype="bf16")
        time = pm.predict(op, machine, timing="kernel", library="torch").predicted_time_s
        calls = MeasuredCalls(
            H100, op, np.asarray(time), Timing.KERNEL, CacheState.WARM, "torch-2.11/cublas",
            np.full(k.size, ""), "mine.csv", np.arange(k.size),
        )  # fmt: skip
        table = calibrate_calls([calls], machine, "mine", "2026-01-01").families[0].table
        own = replace(machine, latency={**machine.latency, "gemm_bf16": table})
        return set(pm.predict(product(4096, 4096, 4097), own, library="torch").uncertainty)

    assert ErrorSource.EXTRAPOLATION not in calibrated(np.arange(701.0, 719.0))  # nine odd, the others off vectors too
    assert ErrorSource.EXTRAPOLATION in calibrated(8.0 * np.arange(90.0, 108.0))


def test_rows_of_one_doubt_do_not_take_away_another_of_the_same_source() -> None:
    machine = pm.hardware(H100)
    queries = np.linspace(128.0, 4096.0, 18).round()

    def calibrated(heads: float, keys: np.ndarray) -> set[ErrorSource]:
        op = pm.Attention(
            batch=1, heads=32, seq_q=queries, seq_kv=keys, head_dim=heads + 0.0 * queries, causal=True, dtype="bf16"
        )
        time = pm.predict(op, machine, library="torch").predicted_time_s
        calls = MeasuredCalls(
            H100, op, np.asarray(time), Timing.KERNEL, CacheState.WARM, "torch-2.11/sdpa",
            np.full(18, ""), "mine.csv", np.arange(18),
        )  # fmt: skip
        return set(calibrate_calls([calls], machine, "mine", "2026-01-01").families[0].table.deviations)

    assert ErrorSource.EXTRAPOLATION not in calibrated(80.0, queries)  # of padded masks nothing is known
    assert ErrorSource.EXTRAPOLATION in calibrated(80.0, 2.0 * queries + 1.0)


def test_rows_of_large_heads_leave_the_doubt_about_others() -> None:
    machine = pm.hardware(H100)
    table = machine.latency["attention_prefill"]
    known = replace(table, deviations={**table.deviations, ErrorSource.EXTRAPOLATION: (0.0,) * len(REGIMES)})
    machine = replace(machine, latency={**machine.latency, "attention_prefill": known})
    padded, large = (pm.predict(attention(4096, 4096, size), machine, library="torch") for size in (80, 512))
    assert ErrorSource.EXTRAPOLATION not in set(padded.uncertainty)
    assert ErrorSource.EXTRAPOLATION in set(large.uncertainty)


V100 = "v100-pcie-32gb"  # its dispatch was measured with torch 2.1


def width(machine: str, numel: float, library: str, timing: str = "event") -> float:
    op = pm.Elementwise(numel=numel, dtype="fp32")
    found = pm.predict(op, machine, library=library, timing=timing)
    return float(found.predicted_time_high_s) / float(found.predicted_time_low_s)


def test_a_call_dispatched_by_another_host_is_less_sure_the_shorter_its_kernel() -> None:
    measured, own = (width(V100, 4096, library) for library in ("torch-2.1", "torch-2.11"))
    assert measured < 1.1
    # eight hosts differ by 0.23 to 0.42: 80 % of them lie within a factor of 2.8 from end to end
    assert own == pytest.approx(math.exp(2.0 * Z80 * 0.4), rel=0.05)
    assert width(V100, 4096, "") == pytest.approx(width(V100, 4096, "torch-2.11"), rel=0.05)
    for numel in (4e6, 4e8):
        wider = width(V100, numel, "torch-2.11") / width(V100, numel, "torch-2.1")
        assert (wider == pytest.approx(1.0)) == (numel == 4e8)
        assert wider < own


def test_no_host_is_in_the_time_of_a_kernel_and_what_machines_differ_by_holds_none() -> None:
    assert width(V100, 4096, "torch-2.1", "kernel") == pytest.approx(
        width(V100, 4096, "torch-2.11", "kernel"), rel=0.01
    )
    found = pm.predict(pm.Elementwise(numel=4096, dtype="fp32"), "a10", library="torch", timing="event").uncertainty
    assert ErrorSource.MACHINE in found
    assert ErrorSource.DISPATCH in found


@pytest.mark.parametrize(
    "op", [pm.Scan(cols=2**22, dtype="fp32"), pm.Sort(cols=2**22), pm.Softmax(rows=4096, cols=4096, dtype="fp32")]
)
def test_kernels_by_hand_whose_blocks_exchange_results_are_less_sure(op: pm.Operator) -> None:
    """By 0.7 of ln, which alone makes the upper end exp(1.28 * 0.7) = 2.45 times as high."""
    own, tuned = (pm.predict(op, "rtx-3090", library=library) for library in ("own", "cub"))
    assert own.predicted_time_s == tuned.predicted_time_s
    assert own.predicted_time_high_s > 2.45 * own.predicted_time_s
    assert own.predicted_time_high_s > 1.2 * tuned.predicted_time_high_s


def test_streams_by_hand_are_as_sure_as_others() -> None:
    op = pm.Elementwise(numel=2**26, dtype="fp32")
    own, tuned = (pm.predict(op, "rtx-3090", library=library) for library in ("own", "cub"))
    assert own.predicted_time_high_s == tuned.predicted_time_high_s


@pytest.mark.parametrize("library", ["torch", "miopen", "", "jax", "nonsense"])
def test_convolutions_in_fp32_that_may_run_image_by_image_are_hardly_known(library: str) -> None:
    """On an MI300X four of them took 4.5 to 8 times the predicted time (nod-ai/iree-kernel-benchmark)."""
    op = pm.Conv2d(n=48, c=64, h=58, w=58, k=64, r=3, s=3, dtype="fp32")
    found, half = (pm.predict(op.changed(dtype=d), "mi300x", library=library, cache="warm") for d in ("fp32", "fp16"))
    assert found.predicted_time_high_s > 496e-6
    assert half.predicted_time_high_s < 5.0 * half.predicted_time_s
    assert ErrorSource.EXTRAPOLATION not in set(pm.predict(op, "v100", library=library).uncertainty)


def test_rotations_by_their_authors_are_less_sure_than_a_librarys() -> None:
    op = pm.Rope(tokens=4096, dim=4096, head_dim=64, heads=32, kv_heads=32, dtype="fp32")
    tuned, own, triton = (pm.predict(op, "h20", library=library) for library in ("liger", "own", "triton"))
    assert own.predicted_time_high_s == pytest.approx(triton.predicted_time_high_s)
    assert own.predicted_time_high_s > 1.3 * tuned.predicted_time_high_s


@pytest.mark.parametrize(
    ("machine", "library", "measured"),
    [
        ("h100", "nccl-2.27", True), ("h100", "nccl-2.27.3", True), ("h100", "nccl-2.26.2", False),
        ("h100", "nccl-2.27.5", False), ("h200", "nccl-2.26.2", True), ("h20", "nccl-2.27.3", False),
        ("h100", "nccl", False), ("h100", "nccl-2", False),
    ],
)  # fmt: skip
def test_an_installation_was_measured_on_its_machine(machine: str, library: str, measured: bool) -> None:
    found = pm.predict(pm.AllGather(bytes=2**30, num_gpus=8), machine, library=library)
    assert (ErrorSource.INSTALLATION not in found.uncertainty) == measured
    width = float(found.predicted_time_high_s) / float(found.predicted_time_low_s)
    assert (width < 1.2) == measured
