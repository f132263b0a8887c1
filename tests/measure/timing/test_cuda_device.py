"""The CUDA device through small fakes of torch's events, spin kernel, streams and graphs."""

from __future__ import annotations

import contextlib
from types import SimpleNamespace

import pytest

torch = pytest.importorskip("torch")

from perfmodel.core.vocabulary import CacheState  # noqa: E402
from perfmodel.errors import UnavailableError  # noqa: E402
from perfmodel.kernels.device import cuda  # noqa: E402
from perfmodel.measure.timing.stopping_rule import StandardErrorRule  # noqa: E402
from perfmodel.measure.timing.timer import time_call  # noqa: E402


class FakeGpu:
    """A stream of work that runs when it is waited for; the host's time is not on it."""

    def __init__(self):
        self.now_s = 0.0
        self.queue = []
        self.log = []
        self.capturing = None
        self.stream = "default"
        self.on_waiting = 0

    def launch(self, name, length_s):
        if self.capturing is not None:
            self.capturing.append((name, length_s))
        else:
            self.queue.append((name, length_s))

    def drain(self):
        for name, length_s in self.queue:
            if callable(length_s):
                length_s(self.now_s)
            else:
                self.now_s += length_s
            self.log.append(name)
        self.queue = []


class FakeEvent:
    """Stands in for torch.cuda.Event on a `FakeGpu`."""

    gpu: FakeGpu

    def __init__(self, *, enable_timing):
        assert enable_timing
        self.at_s = None

    def record(self):
        self.gpu.queue.append(("event", lambda now_s: setattr(self, "at_s", now_s)))

    def query(self):
        return self.at_s is not None

    def synchronize(self):
        self.gpu.drain()

    def elapsed_time(self, other):
        return (other.at_s - self.at_s) * 1e3


class FakeCudaGraph:
    """Stands in for torch.cuda.CUDAGraph: replays what was launched while it was captured."""

    gpu: FakeGpu

    def __init__(self):
        self.work = []

    def replay(self):
        self.gpu.queue.extend(self.work)


@pytest.fixture
def gpu(monkeypatch):
    made = FakeGpu()
    monkeypatch.setattr(FakeEvent, "gpu", made, raising=False)
    monkeypatch.setattr(FakeCudaGraph, "gpu", made, raising=False)

    @contextlib.contextmanager
    def capture(graph, *, pool, stream, capture_error_mode):
        assert capture_error_mode == "thread_local", "telemetry asks the driver from another thread"
        assert pool == (0, 1)
        made.capturing, made.stream = graph.work, "capturing"
        try:
            yield
        finally:
            made.capturing = None
        made.stream = "default"  # as torch does it: only after a capture that ended well

    fake = {
        "is_available": lambda: True,
        "current_device": lambda: 0,
        "get_device_properties": lambda index: SimpleNamespace(
            name="Fake GPU", uuid="1-2", L2_cache_size=3 * 2**20, major=9, minor=0, multi_processor_count=2,
            total_memory=2**30,
        ),
        "Event": FakeEvent,
        "CUDAGraph": FakeCudaGraph,
        "graph": capture,
        "Stream": lambda: SimpleNamespace(wait_stream=lambda other: None),
        "current_stream": lambda: made.stream,
        "set_stream": lambda stream: setattr(made, "stream", stream),
        "stream": lambda stream: contextlib.nullcontext(),
        "graph_pool_handle": lambda: (0, 1),
        "get_sync_debug_mode": lambda: made.on_waiting,
        "set_sync_debug_mode": lambda mode: setattr(made, "on_waiting", mode),
        "synchronize": made.drain,
        "_sleep": lambda cycles: made.launch("hold", cycles / 3e9),
    }  # fmt: skip
    for name, value in fake.items():
        monkeypatch.setattr(torch.cuda, name, value)
    return made


@pytest.fixture
def device(gpu, monkeypatch):
    made = cuda.CudaDevice()
    made.warm_up_s = 0.0
    made._eviction_buffer = SimpleNamespace(zero_=lambda: gpu.launch("flush", 20e-6))
    return made


def test_hold_lasts_at_least_as_long_as_asked_for_at_any_clock(gpu, device):
    device.hold(1e-3)
    (found,) = gpu.queue
    assert found[1] * 3e9 == 3_000_000, "cycles: 1 ms at 3 GHz, more at the clocks that GPUs have"


def test_flush_and_hold_come_before_the_events_and_only_the_kernel_between_them(gpu, device):
    timing = time_call(lambda: gpu.launch("kernel", 80e-6), device, StandardErrorRule(0.0, 2, 2), cache=CacheState.COLD)
    assert timing.samples_s == pytest.approx((80e-6, 80e-6))
    assert timing.timing == "kernel"
    assert gpu.log[-10:] == ["flush", "hold", "event", "kernel", "event"] * 2


def test_short_kernels_are_replayed_in_one_graph(gpu, device):
    calls = []

    def call():
        calls.append(1)
        gpu.launch("kernel", 4e-6)

    timing = time_call(call, device, StandardErrorRule(0.0, 2, 2), cache=CacheState.WARM, timing="auto")
    # 2 x 0.5 us / 1 % = 100 us: 25 calls of 4 us
    assert (timing.timing, timing.calls_per_sample) == ("graph", 25)
    assert timing.samples_s == pytest.approx((4e-6, 4e-6))
    assert len(calls) == 2 + 25 + 25, "warm-up, the capturing stream's own warm-up, the capture; none while sampling"


def test_an_event_that_the_gpu_has_passed_means_a_late_host(gpu, device):
    def call():
        gpu.launch("kernel", 80e-6)
        gpu.drain()  # as .item() does: the host waits inside the call

    timing = time_call(call, device, StandardErrorRule(0.0, 2, 2), cache=CacheState.WARM)
    assert timing.timing == "event"
    assert timing.discarded == {"host late": 10}


def test_a_capture_that_fails_leaves_no_half_graph_behind(gpu, device, monkeypatch):
    calls = []

    def call():
        calls.append(1)
        if gpu.capturing is not None:
            raise RuntimeError("no")
        gpu.launch("kernel", 4e-6)

    ended = []
    monkeypatch.setattr(torch._C, "_cuda_endAllocateToPool", lambda *place: ended.append(place), raising=False)
    timing = time_call(call, device, StandardErrorRule(0.0, 1, 1), cache=CacheState.WARM, timing="auto")
    assert timing.timing == "kernel"
    assert "no)" in timing.remark
    assert gpu.stream == "default", "what follows runs where it ran before"
    assert ended == [(0, (0, 1))], "the allocator is no longer within the capture"


def test_a_call_in_which_the_host_waits_is_refused_before_it_is_captured(gpu, device):
    captured = []

    def call():
        captured.append(gpu.capturing is not None)
        if gpu.on_waiting == "error":
            raise RuntimeError("called a synchronizing CUDA operation")
        gpu.launch("kernel", 4e-6)

    timing = time_call(call, device, StandardErrorRule(0.0, 1, 1), cache=CacheState.WARM, timing="auto")
    assert timing.timing == "kernel"
    assert "synchronizing" in timing.remark
    assert not any(captured)
    assert gpu.on_waiting == 0


@pytest.mark.parametrize(("keep", "freed_inside"), [(True, 0), (False, 3)])
def test_outputs_of_a_cold_graph_are_kept_until_the_capture_ends(gpu, device, keep, freed_inside):
    inside = []

    class Output:
        def __init__(self):
            gpu.launch("kernel", 1e-6)

        def __del__(self):
            inside.append(gpu.capturing is not None)

    device.capture([Output] * 3, keep_outputs=keep)
    # freed while it is captured, their memory would be that of the next output
    assert sum(inside) == freed_inside
    assert len(inside) == 6, "three of the stream's warm-up, three of the capture"


def test_a_gpu_that_another_process_holds_alone_is_not_available(gpu, monkeypatch):
    def busy(index):
        raise RuntimeError("CUDA error: CUDA-capable device(s) is/are busy or unavailable\nmore lines")

    monkeypatch.setattr(torch.cuda, "get_device_properties", busy)
    with pytest.raises(UnavailableError, match="busy or unavailable"):
        cuda.CudaDevice()


def test_memory_runs_out_in_the_words_of_the_allocator_and_of_the_driver(device):
    assert device.is_out_of_memory(torch.cuda.OutOfMemoryError("x"))
    assert device.is_out_of_memory(RuntimeError("CUDA error: out of memory"))
    assert not device.is_out_of_memory(RuntimeError("an illegal memory access"))


def test_device_facts(device):
    assert (device.kind, device.name, device.uuid, device.cache_bytes) == ("cuda", "Fake GPU", "1-2", 3 * 2**20)
    assert device.tick_s == 0.5e-6
    assert device.facts()["compute_capability"] == "9.0"
