"""Telemetry through a small fake of the module pynvml."""

from __future__ import annotations

import contextlib
import sys
from types import SimpleNamespace

import pytest

from perfmodel.measure.benchmark import nvtx_range
from perfmodel.measure.telemetry.nvml import (
    THROTTLE_REASONS,
    NoTelemetry,
    NvmlTelemetry,
    default_clock_hz,
    open_telemetry,
    throttle_names,
)


class FakeNvmlError(Exception):
    """Stands in for pynvml.NVMLError."""


def _refuse(*args):
    raise FakeNvmlError("not supported")


class FakeNvml:
    """A fake pynvml of one GPU, which refuses to tell its memory clock, its ECC mode and the width of its slot."""

    NVMLError = FakeNvmlError
    NVML_CLOCK_SM, NVML_CLOCK_MEM, NVML_TEMPERATURE_GPU = 1, 2, 0

    def __init__(self):
        self.asked = []
        for name in ("nvmlDeviceGetEccMode", "nvmlDeviceGetMaxPcieLinkWidth"):
            setattr(self, name, _refuse)
        for name, answer in _ANSWERS.items():
            setattr(self, name, lambda *arguments, answer=answer: answer)

    def nvmlDeviceGetHandleByUUID(self, uuid):  # noqa: N802 -- NVML's name
        self.asked.append(uuid)
        return "handle"

    def nvmlDeviceGetMaxClockInfo(self, handle, which):  # noqa: N802
        return 1980 if which == 1 else 3201

    def nvmlDeviceGetClockInfo(self, handle, which):  # noqa: N802
        return 1755 if which == 1 else _refuse()


_ANSWERS = {
    "nvmlInit": None,
    "nvmlSystemGetDriverVersion": b"570.1",
    "nvmlDeviceGetEnforcedPowerLimit": 700_000,
    "nvmlDeviceGetPowerManagementDefaultLimit": 700_000,
    "nvmlDeviceGetDefaultApplicationsClock": 1980,
    "nvmlDeviceGetMigMode": (0, 0),
    "nvmlDeviceGetCurrPcieLinkGeneration": 4,
    "nvmlDeviceGetCurrPcieLinkWidth": 16,
    "nvmlDeviceGetMaxPcieLinkGeneration": 5,
    "nvmlDeviceGetPowerUsage": 512_500,
    "nvmlDeviceGetTemperature": 61,
    "nvmlDeviceGetCurrentClocksThrottleReasons": 0x25,
    "nvmlDeviceGetUtilizationRates": SimpleNamespace(gpu=97, memory=40),
    "nvmlDeviceGetComputeRunningProcesses": ["one", "two"],
}


@pytest.fixture
def fake_nvml(monkeypatch):
    fake = FakeNvml()
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
        "default_power_limit_w": 700.0,
        "default_sm_clock_hz": 1.98e9,
        "mig": False,
        "pcie_generation": 4,
        "pcie_width": 16,
        "max_pcie_generation": 5,
        "max_sm_clock_hz": 1.98e9,
        "max_memory_clock_hz": 3.201e9,
    }
    assert telemetry.read() == {
        "sm_clock_hz": 1.755e9,
        "power_w": 512.5,
        "temperature_c": 61.0,
        "throttle_reasons": ["gpu idle", "software power cap", "software thermal slowdown"],
        "utilization": 0.97,
        "processes": 2,
    }


def test_no_telemetry_on_a_cpu_without_nvml_or_for_a_gpu_that_it_does_not_know(fake_nvml, monkeypatch):
    assert isinstance(open_telemetry(SimpleNamespace(kind="cpu", uuid="")), NoTelemetry)
    fake_nvml.nvmlDeviceGetHandleByUUID = _refuse
    assert isinstance(open_telemetry(GPU), NoTelemetry)
    monkeypatch.setitem(sys.modules, "pynvml", None)
    telemetry = open_telemetry(GPU)
    assert (telemetry.facts(), telemetry.read()) == ({}, {})


def test_every_bit_of_the_mask_has_a_name():
    assert throttle_names(0) == []
    assert throttle_names(0x1FF) == list(THROTTLE_REASONS.values())


def test_the_default_clock_is_that_of_the_applications_else_the_top_one():
    assert default_clock_hz({"default_sm_clock_hz": 1.6e9, "max_sm_clock_hz": 1.98e9}) == 1.6e9
    assert default_clock_hz({"max_sm_clock_hz": 1.98e9}) == 1.98e9
    assert default_clock_hz({}) is None


def test_an_older_pynvml_lacks_functions_and_their_readings(fake_nvml):
    del fake_nvml.nvmlDeviceGetUtilizationRates
    assert "utilization" not in open_telemetry(GPU).read()


@pytest.fixture
def nvtx_anew():
    """nvtx is looked for again, in the test and after it."""
    nvtx_range._annotate.cache_clear()
    yield
    nvtx_range._annotate.cache_clear()


def test_a_range_has_its_name_and_our_domain(monkeypatch, nvtx_anew):
    opened = []

    def annotate(name, domain):
        opened.append((name, domain))
        return contextlib.nullcontext()

    monkeypatch.setitem(sys.modules, "nvtx", SimpleNamespace(annotate=annotate))
    with nvtx_range.nvtx_range("gemm naive"):
        assert opened == [("gemm naive", "perfmodel")]


def test_without_nvtx_a_range_is_nothing(monkeypatch, nvtx_anew):
    monkeypatch.setitem(sys.modules, "nvtx", None)
    assert isinstance(nvtx_range.nvtx_range("gemm naive"), contextlib.nullcontext)


def test_a_slice_tells_the_state_of_its_gpu(fake_nvml, monkeypatch):
    def by_uuid(uuid):
        return "slice" if uuid.startswith(b"MIG-") else _refuse()

    monkeypatch.setattr(fake_nvml, "nvmlDeviceGetHandleByUUID", by_uuid, raising=False)
    whole = {"slice": "whole"}.__getitem__
    monkeypatch.setattr(fake_nvml, "nvmlDeviceGetDeviceHandleFromMigDeviceHandle", whole, raising=False)
    monkeypatch.setattr(fake_nvml, "nvmlDeviceGetMigMode", lambda handle: (int(handle == "whole"), 1))
    assert open_telemetry(GPU).facts()["mig"] is True


def test_throttle_reasons_are_asked_for_by_their_newer_name_too(fake_nvml, monkeypatch):
    monkeypatch.setattr(fake_nvml, "nvmlDeviceGetCurrentClocksThrottleReasons", _refuse)
    assert "throttle_reasons" not in open_telemetry(GPU).moment()
    monkeypatch.setattr(fake_nvml, "nvmlDeviceGetCurrentClocksEventReasons", lambda handle: 0x4, raising=False)
    assert open_telemetry(GPU).moment()["throttle_reasons"] == ["software power cap"]
