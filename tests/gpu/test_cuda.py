"""What only a real GPU can show: kernels, events and the whole command on CUDA. Skipped where there is none."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from perfmodel.core.vocabulary import CacheState, Timing  # noqa: E402 -- after the check that torch is there
from perfmodel.kernels import registry  # noqa: E402
from perfmodel.kernels.device import open_device  # noqa: E402
from perfmodel.kernels.inputs import make_inputs  # noqa: E402
from perfmodel.measure.benchmark.sustain import sustain  # noqa: E402
from perfmodel.measure.telemetry.nvml import NoTelemetry, open_telemetry  # noqa: E402
from perfmodel.measure.telemetry.sampler import Sampler  # noqa: E402
from perfmodel.measure.timing.input_copies import InputCopies  # noqa: E402
from perfmodel.measure.timing.stopping_rule import StandardErrorRule  # noqa: E402
from perfmodel.measure.timing.timer import time_call  # noqa: E402
from perfmodel.operators.elementwise import Elementwise  # noqa: E402
from perfmodel.prediction.latency.terms import EVENTS_S  # noqa: E402
from perfmodel.records.record import read_record  # noqa: E402
from perfmodel.records.schema import Status  # noqa: E402

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="torch sees no CUDA GPU"),
    pytest.mark.filterwarnings(r"ignore:::torch\."),  # advice of torch's own machinery
]


RULE = StandardErrorRule(max_samples=200, time_limit_s=2.0)


def _copy(mebibytes: int) -> Callable[[], Any]:
    source = torch.empty(mebibytes * 2**20, dtype=torch.int8, device="cuda")
    target = torch.empty_like(source)
    return lambda: target.copy_(source)


def _median_s(mebibytes: int, cache: CacheState) -> float:
    return time_call(_copy(mebibytes), open_device("cuda"), RULE, cache=cache).median_s


def test_events_measure_the_copy_and_not_the_launch() -> None:
    # 8 times the data takes 8 times as long, if neither launch latency nor the flush is inside the interval
    assert 6 < _median_s(2048, CacheState.COLD) / _median_s(256, CacheState.COLD) < 10


def test_a_flush_makes_data_that_fits_the_cache_cold() -> None:
    assert _median_s(8, CacheState.COLD) > 1.1 * _median_s(8, CacheState.WARM)


def test_a_hold_lasts_at_least_as_long_as_asked_for() -> None:
    device = open_device("cuda")
    device.hold(1e-3)  # the first launch loads the kernel
    device.synchronize()
    lasted = []
    for asked_s in (5e-3, 20e-3):
        watch = device.stopwatch()
        watch.start()
        device.hold(asked_s)
        watch.stop()
        lasted.append(watch.elapsed_s())
    # cycles are counted at a clock above that of any GPU: a hold is longer than asked for, each time by the same factor
    assert lasted[0] >= 5e-3
    assert 3.5 < lasted[1] / lasted[0] < 4.5


def test_the_host_is_in_time_for_a_kernel_and_late_for_a_call_that_waits() -> None:
    device = open_device("cuda")
    quick = time_call(_copy(64), device, RULE)
    assert quick.timing == Timing.KERNEL
    assert quick.discarded.get("host late", 0) < 0.2 * len(quick.samples_s)
    numbers = torch.ones(1000, device="cuda")
    waiting = time_call(lambda: numbers.sum().item(), device, RULE)
    assert waiting.timing == Timing.EVENT
    assert "dispatch" in waiting.remark


def test_a_graph_and_held_calls_agree_on_a_kernel_and_dispatch_only_adds_to_it() -> None:
    device, call = open_device("cuda"), _copy(128)
    held, graph, event = (
        time_call(call, device, RULE, cache=CacheState.WARM, timing=timing)
        for timing in (Timing.KERNEL, Timing.GRAPH, Timing.EVENT)
    )
    assert (held.timing, graph.timing, event.timing) == (Timing.KERNEL, Timing.GRAPH, Timing.EVENT)
    assert graph.median_s == pytest.approx(held.median_s, rel=0.1)
    assert event.median_s > 0.95 * held.median_s, "the interval that has the host's dispatch in it"


def test_events_around_a_single_call_add_microseconds_to_a_short_kernel() -> None:
    device, call = open_device("cuda"), _copy(128)
    graph, single = (
        time_call(call, device, RULE, cache=CacheState.WARM, timing=timing)
        for timing in (Timing.GRAPH, Timing.DO_BENCH)
    )
    assert single.timing == Timing.DO_BENCH
    assert 1e-6 < single.median_s - graph.median_s < 3 * EVENTS_S


def test_tiny_kernels_are_replayed_many_to_a_sample() -> None:
    device = open_device("cuda")
    timing = time_call(_copy(1), device, RULE, cache=CacheState.WARM, timing="auto")
    assert timing.timing == Timing.GRAPH
    # the number of calls follows from a first time, which is not the median
    assert timing.calls_per_sample * timing.median_s > 40e-6, "the resolution of 0.5 us is about 1 %"


def test_cold_calls_of_one_graph_read_inputs_of_their_own() -> None:
    device, op = open_device("cuda"), Elementwise(numel=2**20, kind="add", dtype="fp32")
    kernel = registry.find_kernels("elementwise")[0]
    inputs = make_inputs(op, "cuda", seed=1)
    with device.precision(op.dtype):
        call = kernel.prepare(op, inputs)
        copies = InputCopies(op, kernel, inputs, call, device)
        cold = time_call(call, device, RULE, cache=CacheState.COLD, timing="auto", copies=copies)
        turning = time_call(call, device, RULE, cache=CacheState.ROTATING, timing="auto", copies=copies)
        warm = time_call(call, device, RULE, cache=CacheState.WARM, timing="auto")
    assert cold.timing == turning.timing == warm.timing == Timing.GRAPH
    assert cold.calls_per_sample > 1
    assert cold.median_s > 1.1 * warm.median_s, "8 MiB come from memory, not from the L2"
    assert turning.median_s > 1.1 * warm.median_s


def test_telemetry_tells_clocks_and_power_while_kernels_run() -> None:
    device = open_device("cuda")
    telemetry = open_telemetry(device)
    if isinstance(telemetry, NoTelemetry):
        pytest.skip("no NVML for this GPU")
    call = _copy(512)
    with Sampler(telemetry) as sampler:
        series = sustain([call], device, 1e-3, 2 * 512 * 2**20, "B/s", 1.2, sampler)
        state = sampler.summary()
    assert len(series["rate"]) >= 2
    assert min(series["rate"]) > 1e11
    assert len(series["sm_clock_hz"]) == len(series["rate"])
    assert state["sm_clock_hz"]["max"] > 1e8
    assert state["power_w"]["median"] > 10
    assert {"driver", "max_sm_clock_hz"} <= telemetry.facts().keys()


def test_the_whole_benchmark_runs(perfmodel: Callable[..., Any], tmp_path: Path) -> None:
    record, table = tmp_path / "record.json", tmp_path / "table.csv.gz"
    ops = ("elementwise", "kind=add", "numel=1048576/67108864", "gemm", "m=1024", "n=1024", "k=1024", "dtype=bf16")
    options = ("--device", "cuda", "--time-limit", "0.2", "--kernel", "torch.*")
    ran = perfmodel("bench", *ops, *options, "--samples", "-o", record)
    assert ran.code == 0, ran.err
    found = read_record(record, ("bench",))
    assert {row.status for row in found.rows} == {Status.OK}
    assert all(row.timing in (Timing.KERNEL, Timing.GRAPH) and row.samples_s for row in found.rows)
    assert found.context.device["kind"] == "cuda"
    measured = perfmodel("bench", *ops, *options, "--format", "measurements", "-o", table)
    assert measured.code == 0, measured.err
    validated = perfmodel("validate", table)
    assert validated.code == 0, validated.err
