"""Back-to-back series on a scripted clock, and copies of inputs."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from perfmodel.kernels.registry import Kernel  # noqa: E402
from perfmodel.measure.benchmark.findings import findings  # noqa: E402
from perfmodel.measure.benchmark.sustain import burst_and_sustained, sustain  # noqa: E402
from perfmodel.measure.telemetry.nvml import NoTelemetry  # noqa: E402
from perfmodel.measure.telemetry.sampler import Sampler  # noqa: E402
from perfmodel.measure.timing.input_copies import MOST_COPIES, InputCopies  # noqa: E402
from perfmodel.operators.elementwise import Elementwise  # noqa: E402


class FakeClock:
    """Seconds that pass when a batch is waited for."""

    def __init__(self):
        self.now = 0.0

    def __call__(self):
        return self.now


class HeatingDevice:
    """A fake device whose calls take 1 ms at first and 2 ms from the third second on."""

    def __init__(self, clock):
        self.clock = clock
        self.calls = 0
        self.waiting = 0
        self.most_waiting = 0

    def stopwatch(self):
        return HeatingWatch(self)


class HeatingWatch:
    def __init__(self, device):
        self.device = device

    def start(self):
        self.first = self.device.calls

    def stop(self):
        self.count = self.device.calls - self.first
        self.device.waiting += 1
        self.device.most_waiting = max(self.device.most_waiting, self.device.waiting)

    def elapsed_s(self):
        self.device.waiting -= 1
        length = self.count * (1e-3 if self.device.clock.now < 3 else 2e-3)
        self.device.clock.now += length
        return length


class FakeSampler:
    def __init__(self, clock):
        self.clock = clock

    def latest(self):
        return 1, {"sm_clock_hz": 2e9 if self.clock.now < 3 else 1e9, "power_w": 700.0}


@pytest.fixture
def heated():
    clock = FakeClock()
    device = HeatingDevice(clock)

    def call():
        device.calls += 1

    return device, sustain([call], device, 1e-3, 1e6, "B/s", 6.0, FakeSampler(clock), clock=clock)


def test_the_rate_falls_as_the_device_heats(heated):
    device, series = heated
    # 1e6 B in 1 ms are 1 GB/s, in 2 ms half of it
    assert series["rate"][0] == pytest.approx(1e9)
    assert series["rate"][-1] == pytest.approx(0.5e9)
    assert series["rate_unit"] == "B/s"
    assert len(series["time_s"]) == len(series["rate"]) == len(series["sm_clock_hz"]) == len(series["power_w"])
    assert set(series["temperature_c"]) == {None}, "the device does not tell"
    gaps = [b - a for a, b in zip(series["time_s"], series["time_s"][1:], strict=False)]
    assert all(0.5 <= gap <= 0.7 for gap in gaps[:-1])
    assert 6.0 <= series["time_s"][-1] <= 6.3
    assert device.waiting == 0


def test_the_next_batch_always_waits_behind_the_running_one(heated):
    device, _ = heated
    assert device.most_waiting == 2


def test_burst_and_sustained_rates(heated):
    _, series = heated
    assert burst_and_sustained(series) == (pytest.approx(1e9), pytest.approx(0.5e9))
    assert burst_and_sustained({"rate": [1.0, 2.0, 3.0]}) is None
    row = {"op": "copy", "name": "copy", "dimensions": "numel=1", "dtype": "fp32", "kernel": "k", "status": "ok"}
    row |= {"note": "", "prediction_error": 0.0, "sustain": series, "measured_time_s": 1e-3}
    said = [sentence for sentence in findings([row]) if "sustained" in sentence]
    assert said == ["copy numel=1 fp32 k: 1 GB/s at first, 500 MB/s after 6 s: sustained / burst = 0.500, "
                    "SM clock 2 GHz to 1 GHz"]  # fmt: skip


def test_one_call_longer_than_the_run_is_one_point(scripted):
    clock = FakeClock()
    device = HeatingDevice(clock)

    def call():
        device.calls += 1

    series = sustain([call], device, 10.0, 1.0, "B/s", 1e-4, Sampler(NoTelemetry()), clock=clock)
    assert len(series["rate"]) == 1


def _copies(scripted, numel=1000, cache_bytes=1e6, free=1e12):
    op = Elementwise(numel=numel, kind="relu")
    inputs = {"x": torch.randn(1, numel)}
    seen = []

    def prepare(op, inputs):
        seen.append(inputs["x"])
        return lambda: inputs["x"].data_ptr()

    kernel = Kernel("test", "elementwise", "test", prepare)
    device = scripted(free_bytes=free)
    device.cache_bytes = cache_bytes
    made = InputCopies(op, kernel, inputs, lambda: inputs["x"].data_ptr(), device)
    return made, inputs["x"], seen


def test_copies_hold_the_same_values_elsewhere(scripted):
    copies, original, seen = _copies(scripted)
    pointers = [call() for call in copies.calls(4)]
    assert pointers[0] == original.data_ptr()
    assert len(set(pointers)) == 4
    assert all(torch.equal(copy, original) for copy in seen)
    assert len(copies.calls(2)) == 2
    assert len(seen) == 3, "copies are made once"


def test_rotating_inputs_are_twice_the_cache(scripted):
    # 4 kB each: 2 x 100 kB are 50 copies
    assert len(_copies(scripted, cache_bytes=1e5)[0].beyond_cache()) == 50
    assert len(_copies(scripted, cache_bytes=1.0)[0].beyond_cache()) == 2
    assert len(_copies(scripted, cache_bytes=1e9)[0].beyond_cache()) == MOST_COPIES


def test_copies_stop_where_memory_is_short(scripted):
    # 0.4 x 40 kB hold two of 8 kB, inputs and output
    assert len(_copies(scripted, free=4e4)[0].calls(10)) == 3
