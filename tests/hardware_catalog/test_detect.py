"""What this machine is: with a small fake of NVML, with made-up /proc and /sys, and on the machine of the tests."""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from perfmodel.errors import UnavailableError
from perfmodel.hardware_catalog import hardware, read_hardware
from perfmodel.hardware_catalog.cpu_spec import cpu_hardware
from perfmodel.hardware_catalog.detect import CpuDescription, detect_cpu, detect_gpus
from perfmodel.hardware_catalog.lint import lint_file
from perfmodel.hardware_catalog.write import write_spec
from perfmodel.operators.gemm import Gemm
from perfmodel.prediction.predict import predict


class SmallFakeNvml:
    """The few functions of `pynvml` that are asked; ``gpus`` are (name, memory in bytes)."""

    NVML_CLOCK_SM, NVML_CLOCK_MEM = 1, 2

    class NVMLError(Exception):
        """As in pynvml."""

    def __init__(self, *gpus: tuple[Any, float], driver: bool = True) -> None:
        self.gpus, self.driver, self.open = gpus, driver, False

    def nvmlInit(self) -> None:  # noqa: N802 -- pynvml's name
        if not self.driver:
            raise self.NVMLError("Driver Not Loaded")
        self.open = True

    def nvmlShutdown(self) -> None:  # noqa: N802
        self.open = False

    def nvmlDeviceGetCount(self) -> int:  # noqa: N802
        return len(self.gpus)

    def nvmlDeviceGetHandleByIndex(self, index: int) -> int:  # noqa: N802
        return index

    def nvmlDeviceGetName(self, handle: int) -> Any:  # noqa: N802
        return self.gpus[handle][0]

    def nvmlDeviceGetMemoryInfo(self, handle: int) -> Any:  # noqa: N802
        return SimpleNamespace(total=self.gpus[handle][1])

    def nvmlDeviceGetMaxClockInfo(self, handle: int, clock: int) -> int:  # noqa: N802
        return 1980 if clock == self.NVML_CLOCK_SM else 3201

    def nvmlDeviceGetMaxPcieLinkGeneration(self, handle: int) -> int:  # noqa: N802
        return 5

    def nvmlDeviceGetMaxPcieLinkWidth(self, handle: int) -> int:  # noqa: N802
        return 16

    def nvmlDeviceGetEnforcedPowerLimit(self, handle: int) -> int:  # noqa: N802
        raise self.NVMLError("Not Supported")

    def nvmlDeviceGetCudaComputeCapability(self, handle: int) -> tuple[int, int]:  # noqa: N802
        return (9, 0)

    def nvmlDeviceGetMemoryBusWidth(self, handle: int) -> int:  # noqa: N802
        return 6144

    def nvmlDeviceGetPciInfo(self, handle: int) -> Any:  # noqa: N802
        return SimpleNamespace(busId=b"00000000:00:06.0", busIdLegacy=f"0000:00:0{6 + handle}.0".encode())

    def nvmlSystemGetDriverVersion(self) -> bytes:  # noqa: N802
        return b"580.95.05"


class NoDriver:
    """The library of a CUDA driver that finds no GPU: CUDA_ERROR_NO_DEVICE."""

    def __getattr__(self, name: str) -> Any:
        return lambda *arguments: 100


def read(nvml: Any, driver: Any = None, *others: Any) -> Any:
    """Return what `detect_gpus` finds of fakes alone, whatever GPUs this machine has."""
    return detect_gpus(nvml, driver or NoDriver(), others)


def test_a_gpu_is_read_and_matched() -> None:
    nvml = SmallFakeNvml(("NVIDIA H200", 143_771 * 2**20), ("NVIDIA GeForce GTX 1660", 8e9))
    (h200, match), (_, none) = read(nvml)
    assert not nvml.open
    assert none is None
    assert match is not None
    assert (match.hardware.name, match.by, match.memory_differs) == ("h200-sxm-141gb", "name", False)
    assert (h200.sm_clock_hz, h200.memory_clock_hz) == (1980e6, 3201e6)
    assert (h200.pcie_generation, h200.pcie_width, h200.driver) == (5, 16, "580.95.05")
    # what the driver does not support, and what an old pynvml does not have, is not known
    assert h200.power_limit_w is None


class SmallFakeDriver:
    """The calls of libcuda that are made; it knows the GPU of one bus id."""

    def cuDeviceGetByPCIBusId(self, device: Any, bus_id: bytes) -> int:  # noqa: N802 -- the driver's name
        device._obj.value = 3
        return 0 if bus_id == b"0000:00:06.0" else 101

    def cuDeviceGetAttribute(self, value: Any, number: int, device: Any) -> int:  # noqa: N802
        assert device.value == 3
        value._obj.value = {16: 132, 38: 60 * 2**20}[number]
        return 0


def test_the_cuda_driver_says_what_nvml_does_not() -> None:
    nvml = SmallFakeNvml(("NVIDIA H200", 143_771 * 2**20), ("NVIDIA H200", 143_771 * 2**20))
    (first, _), (second, _) = read(nvml, SmallFakeDriver())
    assert (first.sm_count, first.l2_bytes, first.compute_capability) == (132, 60 * 2**20, "9.0")
    assert (second.sm_count, second.l2_bytes) == (None, None), "the driver does not see it"
    # 3201 MHz, twice, 6144 bit
    assert first.memory_bandwidth_bytes_per_s == pytest.approx(4.917e12, rel=1e-3)
    assert first.ecc is None


def test_old_pynvml_returns_bytes() -> None:
    ((gpu, match),) = read(SmallFakeNvml((b"Tesla T4", 15_843_721_216)))
    assert gpu.name == "Tesla T4"
    assert match is not None
    assert match.hardware.name == "t4"


def test_no_driver_and_no_gpu_are_no_errors() -> None:
    assert read(SmallFakeNvml(driver=False)) == ()
    assert read(SmallFakeNvml()) == ()


def test_no_pynvml_is_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "pynvml", None)
    assert read(None) == ()


def fake_root(folder: Path, *, flags: str, threads: int, cores: int, max_khz: int | None) -> Path:
    """Make the files of /proc and /sys of a machine with SMT, 32 KiB L1 and 1 MiB L2 a core and one 32 MiB L3."""
    blocks = [
        f"processor\t: {thread}\nvendor_id\t: AuthenticAMD\nmodel name\t: AMD EPYC 9999 64-Core Processor\n"
        f"cpu MHz\t\t: 2400.000\nphysical id\t: 0\ncore id\t\t: {thread % cores}\nflags\t\t: {flags}\n"
        for thread in range(threads)
    ]
    (folder / "proc").mkdir()
    (folder / "proc/cpuinfo").write_text("\n".join(blocks))
    (folder / "proc/meminfo").write_text("MemTotal:       16777216 kB\nMemFree:        1 kB\n")
    for thread in range(threads):
        siblings = ",".join(str(other) for other in range(threads) if other % cores == thread % cores)
        everyone = f"0-{threads - 1}"
        caches = [
            ("1", "Data", "32K", siblings),
            ("1", "Instruction", "64K", siblings),
            ("2", "Unified", "1M", siblings),
        ]
        caches.append(("3", "Unified", "32768K", everyone))
        for index, (level, kind, size, shared) in enumerate(caches):
            cache = folder / f"sys/devices/system/cpu/cpu{thread}/cache/index{index}"
            cache.mkdir(parents=True)
            for name, text in (("level", level), ("type", kind), ("size", size), ("shared_cpu_list", shared)):
                (cache / name).write_text(f"{text}\n")
    if max_khz:
        (folder / "sys/devices/system/cpu/cpu0/cpufreq").mkdir()
        (folder / "sys/devices/system/cpu/cpu0/cpufreq/cpuinfo_max_freq").write_text(f"{max_khz}\n")
    return folder


def test_a_cpu_is_described_from_proc_and_sys(tmp_path: Path) -> None:
    cpu = detect_cpu(fake_root(tmp_path, flags="fpu avx avx2 fma", threads=8, cores=4, max_khz=3_700_000))
    assert (cpu.model, cpu.vendor) == ("AMD EPYC 9999 64-Core Processor", "AMD")
    assert (cpu.cores, cpu.threads, cpu.simd_bits, cpu.fma) == (4, 8, 256, True)
    # four cores of each private cache, shared by two threads; one L3; instruction caches do not count
    assert (cpu.l1_bytes, cpu.l2_bytes, cpu.l3_bytes) == (4 * 32 * 2**10, 4 * 2**20, 32 * 2**20)
    assert cpu.memory_bytes == 16 * 2**30
    assert cpu.max_clock_hz == 3.7e9
    assert cpu.slug == "cpu-amd-epyc-9999-64-core-processor"


def test_peak_of_a_cpu_is_cores_lanes_fma_clock(tmp_path: Path) -> None:
    cpu = detect_cpu(fake_root(tmp_path, flags="avx avx2 fma avx512f", threads=8, cores=4, max_khz=2_000_000))
    machine = cpu_hardware(cpu)
    # 4 cores x 16 lanes x 2 units x 2 FLOP x 2 GHz = 512 GFLOP/s; half of it in fp64
    assert [(peak.dtype, peak.flop_per_s) for peak in machine.peaks] == [("fp32", 512e9), ("fp64", 256e9)]
    assert machine.kind == "cpu"
    assert [level.name for level in machine.memory] == ["dram", "l3", "l2", "l1"]
    assert machine.main_memory.bandwidth_bytes_per_s is None
    assert "2 vector units" in machine.notes["peak.vector"]


def test_without_fma_a_multiply_and_an_add_are_two_instructions(tmp_path: Path) -> None:
    cpu = detect_cpu(fake_root(tmp_path, flags="sse2 avx", threads=2, cores=2, max_khz=1_000_000))
    # 2 cores x 8 lanes x 2 units x 1 FLOP x 1 GHz
    assert cpu_hardware(cpu).best_peak("fp32").flop_per_s == 32e9


def test_the_current_clock_stands_in_where_no_maximum_is_known(tmp_path: Path) -> None:
    cpu = detect_cpu(fake_root(tmp_path, flags="avx2", threads=2, cores=2, max_khz=None))
    assert (cpu.max_clock_hz, cpu.clock_source) == (2.4e9, "current clock in /proc/cpuinfo")


def test_a_system_without_proc_and_sys_still_has_a_description(tmp_path: Path) -> None:
    cpu = detect_cpu(tmp_path)
    assert cpu.cores >= 1
    assert cpu.model
    assert (cpu.l1_bytes, cpu.l2_bytes, cpu.l3_bytes, cpu.max_clock_hz) == (None, None, None, None)
    with pytest.raises(UnavailableError, match="no peak is known"):
        cpu_hardware(cpu)
    # a measured rate is a peak until a better one is known
    assert cpu_hardware(cpu, sustained_flop_per_s={"fp32": 1e11}, source="test").best_peak("fp32").flop_per_s == 1e11


CPU = CpuDescription(
    model='Odd "CPU" (R) @ 2.00GHz\\x',
    vendor="v",
    architecture="x86_64",
    cores=2,
    threads=4,
    simd_bits=256,
    fma=True,
    max_clock_hz=2e9,
    clock_source="nominal clock in the model name",
    l1_bytes=2**16,
    l2_bytes=2**21,
    l3_bytes=None,
    memory_bytes=24105.5625 * 2**20,
)


def test_a_measured_rate_above_the_arithmetic_becomes_the_peak() -> None:
    # 2 cores x 8 lanes x 2 x 2 x 2 GHz = 128 GFLOP/s
    slow = cpu_hardware(CPU, sustained_flop_per_s={"fp32": 100e9}, source="s")
    fast = cpu_hardware(CPU, sustained_flop_per_s={"fp32": 150e9}, source="s")
    assert (slow.best_peak("fp32").flop_per_s, slow.best_peak("fp32").sustained_flop_per_s) == (128e9, 100e9)
    assert (fast.best_peak("fp32").flop_per_s, fast.best_peak("fp32").sustained_flop_per_s) == (150e9, 150e9)
    assert "above the arithmetic" in fast.best_peak("fp32").note


def test_a_measured_cpu_is_written_read_predicted_with_and_clean(tmp_path: Path) -> None:
    machine = cpu_hardware(
        CPU,
        bandwidth_bytes_per_s=1.23456789e10,
        sustained_flop_per_s={"fp32": 1.1e11, "bf16": 9e9},
        launch_overhead_s=3.1e-6,
        source="perfmodel calibrate, 2026-11-21",
    )
    assert machine.main_memory.bandwidth_bytes_per_s == machine.main_memory.sustained_bytes_per_s == 1.23456789e10
    assert machine.launch.overhead_s == 3.1e-6
    path = tmp_path / f"{machine.name}.toml"
    write_spec(machine, path)
    assert dataclasses.replace(read_hardware(path), path="") == dataclasses.replace(machine, path="")
    assert [finding.message for finding in lint_file(path)] == []
    prediction = predict(Gemm(m=512, n=512, k=512, dtype="fp32"), hardware(path))
    # 2 x 512^3 FLOP at the 128 GFLOP/s of the arithmetic
    assert prediction.bound_time_s == pytest.approx(2 * 512**3 / 128e9)


@pytest.mark.skipif(not Path("/proc/cpuinfo").is_file(), reason="needs /proc")
def test_this_machine() -> None:
    cpu = detect_cpu()
    assert 1 <= cpu.cores <= cpu.threads == len(os.sched_getaffinity(0))
    assert cpu.memory_bytes is not None
    assert cpu.memory_bytes == os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    assert cpu.simd_bits in (128, 256, 512)
    assert cpu.slug.startswith("cpu-")
