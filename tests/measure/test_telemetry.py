"""Telemetry through a small fake of the module pynvml."""

from __future__ import annotations

import sys
from types import SimpleNamespace

import pytest

from perfmodel.measure import nvtx_range
from perfmodel.measure.telemetry import NoTelemetry, NvmlTelemetry, open_telemetry, throttle_names


class FakeNvmlError(Exception):
    """Stands in for pynvml.NVMLError."""


def _refuse(*args):
    raise FakeNvmlError("not supported")


@pytest.fixture
def fake_nvml(monkeypatch):
    """A fake pynvml of one GPU, which refuses to tell its memory clock and its ECC mode."""
    fake = SimpleNamespace(
        NVMLError=FakeNvmlError,
        NVML_CLOCK_SM=1,
        NVML_CLOCK_MEM=2,
        NVML_TEMPERATURE_GPU=0,
        asked=[],
        nvmlInit=lambda: None,
        nvmlSystemGetDriverVersion=lambda: b"570.1",
        nvmlDeviceGetEnforcedPowerLimit=lambda h: 700_000,
        nvmlDeviceGetMaxClockInfo=lambda h, which: 1980 if which == 1 else 3201,
        nvmlDeviceGetEccMode=_refuse,
        nvmlDeviceGetClockInfo=lambda h, which: 1755 if which == 1 else _refuse(),
        nvmlDeviceGetPowerUsage=lambda h: 512_500,
        nvmlDeviceGetTemperature=lambda h, which: 61,
        nvmlDeviceGetCurrentClocksThrottleReasons=lambda h: 0x25,
    )
    fake.nvmlDeviceGetHandleByUUID = lambda uuid: fake.asked.append(uuid) or "handle"
    monkeypatch.setitem(sys.modules, "pynvml", fake)
    return fake


GPU = SimpleNamespace(kind="cuda", uuid="1234-ab")


def test_readings_are_in_si_units_and_refused_ones_are_left_out(fake_nvml):
    telemetry = open_telemetry(GPU)
    assert isinstance(telemetry, NvmlTelemetry)
    assert fake_nvml.asked == [b"GPU-1234-ab"]
    assert telemetry.facts() == {
        "driver": "570.1",
        "power_limit_w": 700.0,
        "max_sm_clock_hz": 1.98e9,
        "max_memory_clock_hz": 3.201e9,
    }
    assert telemetry.read() == {
        "sm_clock_hz": 1.755e9,
        "power_w": 512.5,
        "temperature_c": 61.0,
        "throttle_reasons": ["software power cap", "software thermal slowdown"],
    }


def test_no_telemetry_on_a_cpu_without_nvml_or_for_a_gpu_that_it_does_not_know(fake_nvml, monkeypatch):
    assert isinstance(open_telemetry(SimpleNamespace(kind="cpu", uuid="")), NoTelemetry)
    fake_nvml.nvmlDeviceGetHandleByUUID = _refuse
    assert isinstance(open_telemetry(GPU), NoTelemetry)
    monkeypatch.setitem(sys.modules, "pynvml", None)
    telemetry = open_telemetry(GPU)
    assert (telemetry.facts(), telemetry.read()) == ({}, {})


def test_idle_is_no_throttle_reason():
    assert throttle_names(0x1) == []
    assert throttle_names(0x1FF & ~0x1) == list(throttle_names(0x1FF))


def test_nvtx_ranges_work_with_and_without_nvtx(monkeypatch):
    with nvtx_range.nvtx_range("gemm naive"):
        pass
    monkeypatch.setitem(sys.modules, "nvtx", None)
    nvtx_range._annotate.cache_clear()
    try:
        with nvtx_range.nvtx_range("gemm naive"):
            pass
    finally:
        nvtx_range._annotate.cache_clear()
