"""Verdicts on hand-made readings: one cause at a time, and none."""

from __future__ import annotations

import dataclasses
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("torch")

from perfmodel.core.hardware import Hardware, Peak
from perfmodel.hardware_catalog import load_all
from perfmodel.measure.calibration.plan import CalibrationPlan
from perfmodel.measure.calibration.rates import Rate
from perfmodel.measure.calibration.transfer import Transfer
from perfmodel.measure.health import readings as readings_module
from perfmodel.measure.health.judge import LEAST_SHARE_OF_PEAK, judge
from perfmodel.measure.health.readings import Readings, take_readings
from perfmodel.measure.health.verdict import Reference, Verdict
from perfmodel.measure.telemetry.nvml import NoTelemetry, NvmlTelemetry

OK, LOW, WRONG, NOT_JUDGED = Verdict

#: readings of a simple GPU that is well: 0.8 of 1 TB/s and 80 of 100 TFLOP/s are its sustained figures, PCIe 10 GB/s
FACTS = {
    "pcie_generation": 4, "pcie_width": 16, "max_pcie_generation": 4, "max_pcie_width": 16,
    "power_limit_w": 400.0, "default_power_limit_w": 400.0, "max_sm_clock_hz": 1.4e9, "default_sm_clock_hz": 1.3e9,
    "mig": False, "ecc": True, "sm_count": 100,
}  # fmt: skip
WELL = Readings(
    kind="cuda",
    bandwidth_bytes_per_s={"copy": 0.79e12},
    flop_per_s={"fp16": 78e12},
    transfer_bytes_per_s={"h2d": 8.6e9, "d2h": 8.4e9},
    facts=FACTS,
    before={"utilization": 0.0, "processes": 1},
    loaded={"sm_clock_hz": 1.25e9, "throttle_reasons": ["software power cap"]},
    load_average=0.1,
    cpu_count=8,
)


@pytest.fixture
def gpu(simple_gpu: Hardware) -> Hardware:
    return dataclasses.replace(simple_gpu, sm_count=100, sustained_source="someone's table")


def changed(**what) -> Readings:
    """Return the readings of the GPU that is well, with some mappings amended and the rest replaced."""
    merged = {
        key: {**getattr(WELL, key), **value} if isinstance(getattr(WELL, key), dict) else value
        for key, value in what.items()
    }
    return dataclasses.replace(WELL, **merged)


def verdicts(readings: Readings, hardware: Hardware | None, records=()) -> dict[str, tuple[str, str]]:
    return {check.figure: (check.verdict, check.cause) for check in judge(readings, hardware, records)}


def test_a_gpu_that_is_well_is_ok_in_everything(gpu):
    found = judge(WELL, gpu)
    assert {check.verdict for check in found} == {OK}
    assert {check.area for check in found} == {"bandwidth", "compute", "clocks", "pcie", "power", "load"}
    copy = next(check for check in found if check.figure == "hbm copy")
    # from 90 % of the sustained 0.8 TB/s to 2 % above the peak of 1 TB/s
    assert (copy.low, copy.high) == (pytest.approx(0.72e12), pytest.approx(1.02e12))
    assert "someone's table" in copy.source


SLOW_FP16 = {"flop_per_s": {"fp16": 30e12}}
SLOW_COPY = {"bandwidth_bytes_per_s": {"copy": 0.3e12}}
CASES = {
    "heat": (
        {**SLOW_FP16, "loaded": {"sm_clock_hz": 0.8e9, "throttle_reasons": ["hardware thermal slowdown"]}},
        {"fp16 product": (WRONG, "heat"), "clock under load": (WRONG, "heat")},
    ),
    "heat, by software": (
        {**SLOW_FP16, "loaded": {"sm_clock_hz": 0.9e9, "throttle_reasons": ["software thermal slowdown"]}},
        {"fp16 product": (WRONG, "target temperature"), "clock under load": (LOW, "target temperature")},
    ),
    "power brake": (
        {"loaded": {"sm_clock_hz": 1.2e9, "throttle_reasons": ["hardware power brake slowdown"]}},
        {"clock under load": (WRONG, "power supply")},
    ),
    "clocks locked low": (
        {**SLOW_FP16, "loaded": {"sm_clock_hz": 0.5e9, "throttle_reasons": []}},
        {"clock under load": (WRONG, "nvidia-smi -lgc")},
    ),
    "application clocks": (
        {"loaded": {"sm_clock_hz": 0.9e9, "throttle_reasons": ["applications clocks setting"]}},
        {"clock under load": (LOW, "nvidia-smi -rac")},
    ),
    "power limit lowered": (
        {"flop_per_s": {"fp16": 60e12}, "facts": {"power_limit_w": 250.0}},
        {"fp16 product": (LOW, "lowered from 400 to 250 W"), "power limit": (LOW, "nvidia-smi -pl")},
    ),
    "MIG slice": (
        {**SLOW_FP16, **SLOW_COPY, "facts": {"mig": True, "sm_count": 42}},
        {"fp16 product": (WRONG, "MIG slice of 42 of 100 SMs"), "hbm copy": (WRONG, "MIG slice"), "SMs": (LOW, "MIG")},
    ),
    "virtual GPU": (
        {**SLOW_FP16, "facts": {"sm_count": 50}},
        {"fp16 product": (WRONG, "50 SMs where the specification has 100")},
    ),
    "x8 link": (
        {"facts": {"pcie_width": 8}, "transfer_bytes_per_s": {"h2d": 4.3e9}},
        {"link lanes": (WRONG, "8 of 16 lanes"), "h2d pinned": (WRONG, "8 of 16 lanes"), "d2h pinned": (OK, "")},
    ),
    "an older generation at work": (
        {"facts": {"pcie_generation": 3}, "transfer_bytes_per_s": {"h2d": 4.3e9, "d2h": 4.2e9}},
        {"link generation": (LOW, "generation 3 of 4"), "h2d pinned": (WRONG, "generation 3 of 4")},
    ),
    "an older slot, or a far CPU": (
        {"transfer_bytes_per_s": {"h2d": 6e9}},
        {"link lanes": (OK, ""), "h2d pinned": (LOW, "numactl")},
    ),
    "busy GPU": (
        {**SLOW_COPY, "before": {"utilization": 0.98, "processes": 2}},
        {"hbm copy": (WRONG, "busy"), "GPU in use before": (LOW, "other processes compute")},
    ),
    "a process that sleeps": (
        {"before": {"utilization": 0.0, "processes": 2}},
        {"hbm copy": (OK, ""), "GPU in use before": (LOW, "wake up")},
    ),
    "slow memory clock": (
        {**SLOW_COPY, "loaded": {"memory_clock_hz": 0.8e9}, "facts": {"max_memory_clock_hz": 1.6e9}},
        {"hbm copy": (WRONG, "800 MHz instead of 1.6 GHz")},
    ),
    "another product than the specification": (
        {"bandwidth_bytes_per_s": {"copy": 1.5e12}},
        {"hbm copy": (WRONG, "above the peak")},
    ),
    "nothing to be seen": (
        {"bandwidth_bytes_per_s": {"copy": 0.6e12}, "loaded": {"throttle_reasons": []}},
        {"hbm copy": (LOW, "no cause is visible")},
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_each_cause_is_named(gpu, name):
    what, expected = CASES[name]
    found = verdicts(changed(**what), gpu)
    for figure, (verdict, words) in expected.items():
        assert found[figure][0] == verdict, figure
        assert words in found[figure][1], figure
        assert bool(found[figure][1]) == (verdict != OK), "what is ok needs no cause, all else has one"


def test_ecc_takes_bandwidth_from_gddr_only(gpu):
    slow = changed(bandwidth_bytes_per_s={"copy": 0.68e12})
    for technology, named in (("GDDR6", True), ("HBM2e", False)):
        memory = (dataclasses.replace(gpu.main_memory, technology=technology), *gpu.memory[1:])
        verdict, cause = verdicts(slow, dataclasses.replace(gpu, memory=memory))["hbm copy"]
        assert verdict == LOW
        assert ("ECC" in cause) == named


def test_a_record_of_the_product_goes_before_the_specification(gpu):
    record = Reference("h.json", bandwidth_bytes_per_s=0.95e12, flop_per_s={"fp16": 99e12})
    found = {check.figure: check for check in judge(WELL, gpu, (record,))}
    # 0.79 TB/s is 92 % of what the record shows less a tenth, and 78 TFLOP/s 88 %
    assert found["hbm copy"].verdict == found["fp16 product"].verdict == LOW
    assert found["hbm copy"].low == pytest.approx(0.9 * 0.95e12)
    assert found["hbm copy"].source == "record h.json"


def test_without_a_measured_figure_the_power_cap_excuses_a_product(gpu):
    plain = dataclasses.replace(gpu, peaks=(Peak("fp16", "tensor", 100e12),))
    slow = changed(**SLOW_FP16)
    assert verdicts(slow, plain)["fp16 product"][0] == LOW, "small boards run at their power limit all the time"
    free = changed(**SLOW_FP16, loaded={"throttle_reasons": []})
    assert verdicts(free, plain)["fp16 product"][0] == WRONG
    assert verdicts(changed(flop_per_s={"fp16": 55e12}), plain)["fp16 product"][0] == OK, "half of the peak is usual"


def test_what_the_shipped_specs_sustain_is_ok_without_their_measured_figures():
    bandwidth = [
        level.sustained_bytes_per_s / level.bandwidth_bytes_per_s
        for machine in load_all()
        if (level := machine.main_memory).sustained_bytes_per_s
    ]
    compute = [
        peak.sustained_flop_per_s / peak.flop_per_s
        for machine in load_all()
        for peak in machine.peaks
        if peak.sustained_flop_per_s
    ]
    assert min(bandwidth) >= LEAST_SHARE_OF_PEAK["bandwidth"] > min(bandwidth) - 0.05
    assert min(compute) >= LEAST_SHARE_OF_PEAK["compute"] > min(compute) - 0.05


def test_absent_readings_are_not_judged_and_never_ok(gpu):
    nothing = Readings("cuda", {"copy": 0.79e12}, {"fp16": 78e12}, {"h2d": 9e9})
    found = verdicts(nothing, dataclasses.replace(gpu, links=()))
    assert found["clock under load"] == (NOT_JUDGED, "NVML gives no clock")
    assert found["h2d pinned"][0] == NOT_JUDGED
    assert found["other programs"][0] == NOT_JUDGED
    assert "power limit" not in found
    assert verdicts(Readings("cuda", {}, {"fp8": 1e12}), gpu)["fp8 product"][0] == NOT_JUDGED


@given(rate=st.floats(1e9, 1e13))
def test_verdicts_fall_with_the_rate(simple_gpu_once, rate):
    order = {WRONG: 0, LOW: 1, OK: 2}
    slow, fast = (
        verdicts(changed(bandwidth_bytes_per_s={"copy": value}), simple_gpu_once)["hbm copy"][0]
        for value in (rate, 1.3 * rate)
    )
    assert order[slow] <= order[fast] or 1.3 * rate > 1.02e12


@pytest.fixture(scope="module")
def simple_gpu_once() -> Hardware:
    from perfmodel.core.hardware import MemoryLevel

    return Hardware("g", "v", "a", (MemoryLevel("hbm", 1e9, 1e12, 0.8e12),), (Peak("fp16", "tensor", 1e14),))


# --- a CPU


def cpu_readings(copy=20e9, fp32=100e9, load=0.1, **facts) -> Readings:
    return Readings(
        "cpu", {"copy": copy}, {"fp32": fp32}, facts={"threads": 4, **facts}, load_average=load, cpu_count=4
    )


@pytest.fixture
def cpu() -> Hardware:
    from perfmodel.core.hardware import MemoryLevel

    # 4 cores x 16 lanes x 2 units x 2 FLOP x 1 GHz = 256 GFLOP/s; no bandwidth is known
    peak = Peak("fp32", "vector", 256e9, flop_per_clock_per_sm=64)
    return Hardware("c", "v", "a", (MemoryLevel("dram", 1e10),), (peak,), kind="cpu", sm_count=4)


def test_a_cpu_is_judged_by_its_arithmetic_and_by_what_memory_can_be(cpu):
    found = verdicts(cpu_readings(fp32=110e9), cpu)
    assert found["dram copy"][0] == found["fp32 product"][0] == OK, "110 of 256 GFLOP/s: one unit a core would be 128"
    assert found["copies"] == (NOT_JUDGED, "a CPU has no link to its memory")
    assert found["clock under load"][0] == NOT_JUDGED
    assert verdicts(cpu_readings(fp32=60e9), cpu)["fp32 product"][0] == LOW
    assert verdicts(cpu_readings(fp32=20e9), cpu)["fp32 product"][0] == WRONG
    assert verdicts(cpu_readings(copy=1e9), cpu)["dram copy"][0] == WRONG
    assert verdicts(cpu_readings(copy=9e12), cpu)["dram copy"][0] == WRONG, "faster than any memory of a CPU"
    assert verdicts(cpu_readings(), None)["fp32 product"][0] == NOT_JUDGED


@pytest.mark.parametrize(
    ("readings", "words"),
    [
        (cpu_readings(fp32=20e9, load=3.0), "other processes use the CPUs"),
        (cpu_readings(fp32=20e9, threads=1), "1 threads on 4 cores"),
        (cpu_readings(fp32=20e9, cpu_capability="DEFAULT"), "vector units"),
    ],
)
def test_causes_on_a_cpu(cpu, readings, words):
    assert words in verdicts(readings, cpu)["fp32 product"][1]


def test_a_calibrated_cpu_is_judged_by_its_own_figures(cpu):
    calibrated = dataclasses.replace(
        cpu,
        memory=(dataclasses.replace(cpu.main_memory, bandwidth_bytes_per_s=30e9, sustained_bytes_per_s=25e9),),
        peaks=(dataclasses.replace(cpu.peaks[0], sustained_flop_per_s=200e9),),
    )
    found = verdicts(cpu_readings(copy=20e9, fp32=110e9), calibrated)
    # 20 of 25 GB/s is below 90 %; 110 of 200 GFLOP/s below 0.7 x 90 %
    assert (found["dram copy"][0], found["fp32 product"][0]) == (LOW, WRONG)


def test_a_cpu_clock_is_judged_by_the_one_that_the_system_knows(cpu):
    clocked = dataclasses.replace(cpu, clocks_hz={"vector": 3e9})
    slow = dataclasses.replace(cpu_readings(), loaded={"sm_clock_hz": 2e9})
    assert verdicts(slow, clocked)["clock under load"][0] == LOW


# --- taking the readings


class FakeNvmlError(Exception):
    """Stands in for pynvml.NVMLError."""


class FakeNvml:
    """A fake pynvml of one GPU whose link wakes up when it works; what is not listed here, it refuses to tell."""

    NVMLError = FakeNvmlError

    def __init__(self):
        self.awake = False

    def __getattr__(self, name):
        if name.startswith("NVML_"):
            return name
        answers = {
            "nvmlDeviceGetCurrPcieLinkGeneration": 5 if self.awake else 1,
            "nvmlDeviceGetMaxPcieLinkGeneration": 5,
            "nvmlDeviceGetClockInfo": 1755,
            "nvmlDeviceGetUtilizationRates": SimpleNamespace(gpu=42, memory=0),
            "nvmlDeviceGetCurrentClocksThrottleReasons": 0x4,
        }
        if name not in answers:
            raise FakeNvmlError(name)
        return lambda *_: answers[name]


class FakeGpu:
    """A fake GPU, of which only the kind and the facts are asked."""

    kind, name = "cuda", "Fake GPU"

    def facts(self):
        return {"sm_count": 100}

    def synchronize(self): ...

    def precision(self, dtype):
        import contextlib

        return contextlib.nullcontext()


def test_readings_of_a_gpu_are_taken_at_rest_under_load_and_at_copying(monkeypatch):
    nvml = FakeNvml()

    def copies(*_, direction, **__):
        nvml.awake = True
        return Transfer(direction, True, (1e8,), (1e-2,))

    monkeypatch.setattr(readings_module, "main_memory", lambda *_: {"copy": Rate(0.8e12, 0.9e12)})
    monkeypatch.setattr(readings_module, "product_rates", lambda *_: ({"fp16": Rate(8e13, 8e13)}, []))
    monkeypatch.setattr(readings_module, "library_call", lambda *_: lambda: None)
    monkeypatch.setattr(readings_module, "measured_transfer", copies)
    found = take_readings(
        FakeGpu(), NvmlTelemetry(nvml, "handle"), ["fp16"], lambda message: None, CalibrationPlan(1, 1, 1.0)
    )
    assert found.bandwidth_bytes_per_s == {"copy": 0.8e12}
    assert found.transfer_bytes_per_s == {"h2d": 1e10, "d2h": 1e10}
    assert found.before["utilization"] == 0.42
    assert found.loaded["sm_clock_hz"] == 1.755e9
    assert found.loaded["throttle_reasons"] == ["software power cap"]
    assert (found.facts["pcie_generation"], found.facts["sm_count"]) == (5, 100), "the link as it is at work"


def test_readings_of_a_scripted_cpu(scripted, monkeypatch, tmp_path):
    plan = CalibrationPlan(1, 1, 1.0, least_buffer_bytes={"cpu": 2.0**20}, largest_product={"cpu": 256})
    clock = tmp_path / "scaling_cur_freq"
    clock.write_text("2400000\n")  # Linux counts it in kHz
    monkeypatch.setattr(readings_module, "_CPU_CLOCK", clock)
    found = take_readings(scripted([1e-3]), NoTelemetry(), ["fp32"], lambda message: None, plan)
    assert found.flop_per_s == {"fp32": pytest.approx(2 * 256**3 / 1e-3)}
    assert (found.transfer_bytes_per_s, found.before) == ({}, {})
    assert found.loaded["sm_clock_hz"] == 2.4e9
    assert found.facts["threads"] == 1
