"""Calibration on a scripted clock, and how its figures enter a machine."""

from __future__ import annotations

import dataclasses

import pytest

pytest.importorskip("torch")

from perfmodel.analysis.predict import predict
from perfmodel.core.hardware import Peak
from perfmodel.measure import calibrate, presets
from perfmodel.measure.calibrate import Effort, Figures, with_figures
from perfmodel.operators._parse import parse_operators
from perfmodel.operators.elementwise import Elementwise

FIGURES = Figures(
    {"copy": 0.7e12, "add": 0.75e12, "read": 0.72e12}, 0.76e12, {"fp16": 60e12, "fp32": 5e12}, 3e-6, "test", "how"
)


def test_rates_follow_from_the_scripted_time(scripted, monkeypatch):
    monkeypatch.setattr(calibrate, "_LEAST_BUFFER_BYTES", {"cpu": 2.0**20})
    monkeypatch.setattr(calibrate, "_LARGEST_PRODUCT", {"cpu": 256})
    found = calibrate.calibrate(scripted([1e-3]), ["fp32", "fp8", "fp32"], Effort(1, 2, 1.0), lambda message: None)
    # one float32 buffer is 4 MB (4 x the cache of 1 MB), rounded up to rows of 2^16 elements: 16 of them
    buffer_bytes = 16 * 2**16 * 4
    assert found.bandwidth_bytes_per_s["copy"] == pytest.approx(2 * buffer_bytes / 1e-3, rel=1e-3)
    assert found.bandwidth_bytes_per_s["add"] == pytest.approx(3 * buffer_bytes / 1e-3, rel=1e-3)
    assert found.bandwidth_bytes_per_s["read"] == pytest.approx(buffer_bytes / 1e-3, rel=1e-3)
    assert found.fastest_bytes_per_s == found.bandwidth_bytes_per_s["add"], "every sample takes the same time here"
    assert found.flop_per_s == {"fp32": pytest.approx(2 * 256**3 / 1e-3, rel=1e-3)}, "fp8 cannot run"
    assert found.call_overhead_s == 1e-3


def test_products_stop_growing_before_one_takes_too_long(scripted, monkeypatch):
    sizes = []
    real = calibrate.Gemm
    monkeypatch.setattr(calibrate, "Gemm", lambda **kw: sizes.append(kw["m"]) or real(**kw))
    calibrate._product_rate("fp32", scripted([1e-3]), Effort(1, 1, 0.007))
    assert sizes == [256], "8 ms for the next size is over the limit of 7 ms"


def test_figures_become_sustained_ceilings_beside_the_datasheet(simple_gpu):
    machine = with_figures(simple_gpu, FIGURES, memory_is_measured=False)
    assert machine.main_memory.bandwidth_bytes_per_s == 1e12
    assert machine.main_memory.sustained_bytes_per_s == 0.7e12
    assert machine.find_peak("fp16", "tensor").flop_per_s == 100e12
    assert machine.find_peak("fp16", "tensor").sustained_flop_per_s == 60e12
    assert (machine.launch.floor_s, machine.launch.overhead_s) == (1e-6, 3e-6)
    op = Elementwise(numel=10**8, kind="copy")
    assert predict(op, machine).bound_time_s == predict(op, simple_gpu).bound_time_s, (
        "measuring does not move the bound"
    )
    # a copy of 800 MB at the measured 0.7 TB/s
    assert predict(op, machine).predicted_time_s == pytest.approx(8e8 / 0.7e12, rel=0.1)


def test_memory_without_a_datasheet_is_bounded_by_its_fastest_sample(simple_gpu):
    machine = with_figures(simple_gpu, FIGURES, memory_is_measured=True)
    assert machine.main_memory.bandwidth_bytes_per_s == 0.76e12
    assert machine.main_memory.sustained_bytes_per_s == 0.7e12
    assert "fastest sample" in machine.main_memory.note


def test_slow_half_precision_of_a_cpu_does_not_bound(simple_gpu):
    """bf16 products at 1/10 of float32's peak are a sustained rate; converted to float32, others can be faster."""
    cpu = dataclasses.replace(
        simple_gpu,
        kind="cpu",
        peaks=(Peak("fp32", "vector", 10e12, flop_per_clock_per_sm=64), Peak("bf16", "vector", 1e12)),
    )
    figures = dataclasses.replace(FIGURES, flop_per_s={"bf16": 1e12, "fp32": 8e12})
    bf16 = with_figures(cpu, figures, memory_is_measured=True).find_peak("bf16", "vector")
    assert (bf16.flop_per_s, bf16.sustained_flop_per_s) == (10e12, 1e12)


@pytest.mark.parametrize("kind", ["cpu", "cuda"])
@pytest.mark.parametrize("name", ["quick", "full"])
def test_presets_parse_and_cover_the_first_operators(name, kind):
    ops = parse_operators(presets.preset(name, kind).tokens(50e6))
    assert {op.op for op in ops} == {"elementwise", "gemm", "layer_norm", "attention"}
    assert any(op.op == "attention" and op.causal for op in ops)


def test_presets_reach_beyond_every_cache():
    for cache_bytes in (1e6, 36e6, 256e6):
        ops = parse_operators(presets.preset("quick", "cpu").tokens(cache_bytes))
        moved = [op.work().bytes for op in ops if op.op == "elementwise" and op.kind == "add"]
        assert max(max(bytes_) for bytes_ in moved) >= 4 * cache_bytes
    assert len({op.dtype for op in parse_operators(presets.preset("full", "cuda").tokens(5e7))}) >= 4
