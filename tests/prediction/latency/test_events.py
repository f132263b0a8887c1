"""A single call between two events: its kernels, and what the events add, each with an error of its own."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest

import perfmodel as pm
from perfmodel.core.machine_parts import ExchangeLine
from perfmodel.core.vocabulary import ErrorSource
from perfmodel.prediction.latency.terms import BOUND, EVENTS, EVENTS_DIFFER, EVENTS_S


def test_the_events_add_the_same_to_every_kernel() -> None:
    for op in (pm.Gemm(m=64, n=512, k=512, dtype="bf16"), pm.Elementwise(numel=10**7), pm.RmsNorm(rows=8, cols=128)):
        kernel = pm.predict(op, "h100")
        between = pm.predict(op, "h100", timing="do_bench")
        assert between.predicted_time_s == pytest.approx(kernel.predicted_time_s + EVENTS_S)
        assert between.predicted_terms_s == {**kernel.predicted_terms_s, EVENTS: EVENTS_S}
        assert between.bound_time_s == kernel.bound_time_s


def test_a_composition_has_the_events_once() -> None:
    op = pm.RmsNorm(rows=4096, cols=4096, dtype="bf16")
    kernel, between = (pm.predict(op, "h100", library="torch-2.4", timing=timing) for timing in ("kernel", "do_bench"))
    assert between.predicted_time_s == pytest.approx(kernel.predicted_time_s + EVENTS_S)


def test_a_short_kernel_is_as_sure_as_its_events_and_a_long_one_as_the_kernel() -> None:
    short, long = (pm.predict(pm.Elementwise(numel=n), "h100", timing="do_bench") for n in (1, 10**9))
    width = math.log(short.predicted_time_high_s / short.predicted_time_low_s)
    assert width < math.log(EVENTS_DIFFER[1] / EVENTS_DIFFER[0]) + 0.35
    alone = pm.predict(pm.Elementwise(numel=10**9), "h100")
    assert long.predicted_time_high_s == pytest.approx(alone.predicted_time_high_s, rel=0.01)
    assert max(short.uncertainty.variances(short.regime).items(), key=lambda item: item[1])[0] == ErrorSource.DISPATCH


def test_a_sweep_has_what_its_points_have() -> None:
    sizes = np.geomspace(1e2, 1e9, 30).round()
    swept = pm.predict(pm.Elementwise(numel=sizes), "h100", timing="do_bench")
    for place, size in enumerate(sizes.tolist()):
        one = pm.predict(pm.Elementwise(numel=size), "h100", timing="do_bench")
        for name in ("predicted_time_s", "predicted_time_low_s", "predicted_time_high_s"):
            assert getattr(swept, name)[place] == pytest.approx(getattr(one, name), rel=1e-12)


def test_what_do_bench_measures_of_a_short_kernel_is_no_slow_kernel() -> None:
    from perfmodel.prediction.measured import judge_measured

    op = pm.RmsNorm(rows=8, cols=128, dtype="bf16")  # 5.2 us on an H100 by Helion, pytorch/torchtitan pull request 3342
    judged = judge_measured(op, pm.hardware("h100"), 5.2e-6, library="liger")
    assert "--timing do-bench" in judged.causes[0]
    assert judge_measured(op, pm.hardware("h100"), 5.2e-6, library="liger", timing="do_bench").verdict == "as expected"


SENT = [
    *(pm.Memcpy(bytes=np.array([1e3, 1e6, 1e9]), direction=direction) for direction in ("h2d", "d2h", "d2d")),
    *(kind(bytes=np.array([1e3, 1e6, 1e9]), num_gpus=n)
      for kind in (pm.AllReduce, pm.AllGather, pm.Alltoall, pm.SendRecv) for n in (1, 2, 8)),
]  # fmt: skip


@pytest.mark.parametrize("machine", ["h100-sxm5-80gb", "a100-sxm4-80gb", "l40s", "b200-sxm-180gb", "mi300x", "t4"])
@pytest.mark.parametrize("op", SENT, ids=lambda op: f"{op.op} {op.params()}"[:60])
def test_events_around_a_copy_or_an_exchange_see_its_dispatch(op: pm.Operator, machine: str) -> None:
    """A framework's call takes no less than a call that waits in the queue."""
    kernel, queued, call = (pm.predict(op, machine, timing=timing) for timing in ("kernel", "do_bench", "event"))
    assert np.all(call.predicted_time_s >= queued.predicted_time_s)
    dispatch = pm.predict(pm.Elementwise(numel=1), machine, library="torch-2.1", timing="event").predicted_time_s
    assert np.all(call.predicted_time_s <= np.asarray(kernel.predicted_time_s) + 1.1 * dispatch)
    assert pm.predict(op, machine, timing="graph").predicted_time_s == pytest.approx(kernel.predicted_time_s)
    # nobody measured the host: a short call is less sure than its kernel is after its dispatch
    short = call.rows()[0]
    assert short["predicted_time_high_s"] / short["predicted_time_low_s"] > math.exp(2 * 1.28 * 0.35)


def test_where_a_link_was_measured_a_framework_dispatches_all_the_same() -> None:
    line = ExchangeLine(latency_s=10e-6, bandwidth_bytes_per_s=100e9, deviation=0.1, ranks=2)
    h100 = pm.hardware("h100")
    links = [dataclasses.replace(link, lines={"all_reduce": line}) if link.name == "nvlink" else link
             for link in h100.links]  # fmt: skip
    machine = dataclasses.replace(h100, links=tuple(links))
    op = pm.AllReduce(bytes=1024, num_gpus=2)
    kernel, queued, call = (pm.predict(op, machine, timing=timing) for timing in ("kernel", "do_bench", "event"))
    assert kernel.family == "all_reduce_line"
    assert call.predicted_time_s > queued.predicted_time_s > kernel.predicted_time_s


@pytest.mark.parametrize(
    ("op", "library"),
    [
        (pm.SsmScan(seq=410, channels=738, dtype="fp64", backward=True), "torch"),
        (pm.Quantize(rows=67, cols=38487, dtype="fp4", in_dtype="tf32"), "torch-2.11"),
    ],
    ids=lambda value: getattr(value, "op", value),
)
def test_dispatch_comes_beside_the_bound_of_a_kernel_whose_formula_falls_short_of_it(
    op: pm.Operator, library: str
) -> None:
    kernel, queued, call = (
        pm.predict(op, "rtx-pro-6000-server", library=library, timing=timing)
        for timing in ("kernel", "do_bench", "event")
    )
    assert BOUND in kernel.predicted_terms_s
    assert call.predicted_time_s > queued.predicted_time_s > kernel.predicted_time_s
    assert sum(call.predicted_terms_s.values()) == pytest.approx(call.predicted_time_s, rel=1e-12)
