"""The devices: the CPU as it is; CUDA's events through a small fake of torch.cuda.Event."""

from __future__ import annotations

import importlib.util
import os
import time

import pytest

torch = pytest.importorskip("torch")

from perfmodel.errors import UnavailableError, UsageError  # noqa: E402
from perfmodel.kernels import device as devices  # noqa: E402
from perfmodel.kernels.device import cpu as cpu_device  # noqa: E402
from perfmodel.kernels.device import cuda  # noqa: E402


def test_cpu_stopwatch_measures_what_lies_between_start_and_stop():
    watch = devices.open_device("cpu").stopwatch()
    begin = time.perf_counter()
    watch.start()
    time.sleep(0.01)
    watch.stop()
    outside = time.perf_counter() - begin
    assert 0.01 <= watch.elapsed_s() <= outside


def test_flush_reads_more_than_the_cache():
    cpu = cpu_device.CpuDevice()
    cpu.flush_cache()
    buffer = cpu._eviction_buffer
    assert buffer.numel() * buffer.element_size() >= 2 * cpu.cache_bytes - 4
    assert float(buffer.min()) == 1.0, "pages that were never written all map to one zero page"


def test_threads_are_set_and_recorded():
    before = torch.get_num_threads()
    try:
        assert devices.open_device("cpu", threads=1).facts()["threads"] == 1
        assert torch.get_num_threads() == 1
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize("threads", [0, -2])
def test_no_threads_are_refused(threads):
    with pytest.raises(UsageError, match="cannot run"):
        devices.open_device("cpu", threads=threads)


def test_four_threads_per_cpu_are_allowed_and_more_are_refused():
    before, cpus = torch.get_num_threads(), os.cpu_count() or 1
    try:
        assert devices.open_device("cpu", threads=4 * cpus).facts()["threads"] == 4 * cpus
        with pytest.raises(UsageError, match=f"Give 1 to {4 * cpus} threads"):
            devices.open_device("cpu", threads=4 * cpus + 1)
    finally:
        torch.set_num_threads(before)


def test_unknown_device_is_refused_with_the_allowed_ones():
    with pytest.raises(UsageError, match="Allowed: cpu, cuda"):
        devices.open_device("tpu")


def test_missing_torch_says_how_to_install_it(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(UnavailableError, match="perfmodel\\[bench\\]"):
        devices.open_device("cpu")


def test_missing_gpu_is_an_unavailable_device(monkeypatch):
    monkeypatch.setattr(cuda, "is_available", lambda: False)
    with pytest.raises(UnavailableError, match="--device cpu"):
        devices.open_device("cuda")
    assert devices.open_device().kind == "cpu", "the CPU is the default where there is no GPU"


def test_a_refused_allocation_is_recognised_and_other_errors_are_not():
    cpu = devices.open_device("cpu")
    with pytest.raises(RuntimeError) as refused:
        torch.empty(2**60, dtype=torch.int8)
    assert cpu.is_out_of_memory(refused.value)
    assert not cpu.is_out_of_memory(RuntimeError("mat1 and mat2 shapes cannot be multiplied"))


def test_free_memory_is_positive():
    assert devices.open_device("cpu").free_memory_bytes() > 2**20


class FakeCudaEvent:
    """Stands in for torch.cuda.Event: notes the order of calls; an interval lasts 2.5 ms."""

    log: list[str]

    def __init__(self, *, enable_timing: bool) -> None:
        assert enable_timing

    def record(self) -> None:
        self.log.append("record")

    def synchronize(self) -> None:
        self.log.append("synchronize")

    def elapsed_time(self, other: FakeCudaEvent) -> float:
        self.log.append("elapsed")
        return 2.5


def test_fake_cuda_events_are_recorded_around_the_call_and_waited_for_only_at_the_end(monkeypatch):
    FakeCudaEvent.log = []
    monkeypatch.setattr(torch.cuda, "Event", FakeCudaEvent)
    watch = cuda.CudaStopwatch()
    watch.start()
    FakeCudaEvent.log.append("kernel")
    watch.stop()
    assert FakeCudaEvent.log == ["record", "kernel", "record"]
    assert watch.elapsed_s() == pytest.approx(2.5e-3), "torch gives milliseconds"
    assert FakeCudaEvent.log[3:] == ["synchronize", "elapsed"]
