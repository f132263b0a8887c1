"""What this machine is where NVML is absent: small fakes of the CUDA driver, of torch and of AMD's tools."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from perfmodel.core.report import report
from perfmodel.hardware_catalog.amd import read_amd_smi, read_amdsmi, read_rocm_smi, run_tool
from perfmodel.hardware_catalog.detect import Detection, detect_cpu, detect_gpus
from perfmodel.hardware_catalog.gpu_reading import GpuReading
from perfmodel.hardware_catalog.torch_gpus import read_torch

GIB = 2**30


class NoNvml:
    """A `pynvml` without a driver."""

    class NVMLError(Exception):
        """As in pynvml."""

    def nvmlInit(self) -> None:  # noqa: N802 -- pynvml's name
        raise self.NVMLError("Driver Not Loaded")


class OneGpuDriver:
    """The calls of libcuda that are made, with one H200; attributes by their numbers in the CUDA driver API."""

    ATTRIBUTES = {13: 1_980_000, 16: 132, 36: 3_201_000, 37: 6144, 38: 60 * 2**20, 75: 9}  # noqa: RUF012 -- a fake's

    def __init__(self, gpus: int = 1) -> None:
        self.gpus = gpus

    def cuDeviceGetCount(self, count: Any) -> int:  # noqa: N802 -- the driver's names
        count._obj.value = self.gpus
        return 0

    def cuDeviceGet(self, device: Any, index: int) -> int:  # noqa: N802
        device._obj.value = index
        return 0

    def cuDeviceGetName(self, name: Any, size: int, device: Any) -> int:  # noqa: N802
        name.value = b"NVIDIA H200"
        return 0

    def cuDeviceTotalMem_v2(self, total: Any, device: Any) -> int:  # noqa: N802
        total._obj.value = 143_156 * 2**20
        return 0

    def cuDeviceGetAttribute(self, value: Any, number: int, device: Any) -> int:  # noqa: N802
        value._obj.value = self.ATTRIBUTES.get(number, 0)
        return 0


def test_the_cuda_driver_lists_gpus_where_pynvml_is_not_installed() -> None:
    ((gpu, match),) = detect_gpus(NoNvml(), OneGpuDriver(), ())
    assert match is not None
    assert match.hardware.name == "h200-sxm-141gb"
    assert (gpu.sm_count, gpu.l2_bytes, gpu.compute_capability, gpu.bus_bits) == (132, 60 * 2**20, "9.0", 6144)
    assert (gpu.sm_clock_hz, gpu.source) == (1980e6, "CUDA driver")


def fake_torch(name: str, memory: float, sms: int, *, hip: str | None = "6.4", design: str = "gfx942:sramecc+") -> Any:
    properties = SimpleNamespace(
        name=name, total_memory=memory, multi_processor_count=sms, gcnArchName=design, L2_cache_size=4 * 2**20,
        major=9, minor=4,
    )  # fmt: skip
    cuda = SimpleNamespace(
        is_available=lambda: True, device_count=lambda: 2, get_device_properties=lambda index: properties
    )
    return SimpleNamespace(cuda=cuda, version=SimpleNamespace(hip=hip))


def test_torch_for_rocm_says_which_gpu_it_is() -> None:
    """The L2 that it states is that of one of eight dies, and does not count."""
    first, second = read_torch(fake_torch("AMD Instinct MI300X", 192 * GIB, 304))
    assert (first.index, second.index, first.l2_bytes, first.compute_capability) == (0, 1, None, "gfx942")
    ((_, match), _) = detect_gpus(NoNvml(), OneGpuDriver(0), (lambda: (first, second),))
    assert match is not None
    assert match.hardware.name == "mi300x"


@pytest.mark.parametrize(("sms", "machine"), [(110, "mi250x"), (104, "mi250")])
def test_one_name_of_two_products_is_told_apart_by_its_compute_units(sms: int, machine: str) -> None:
    gpus = read_torch(fake_torch("AMD Instinct MI250X / MI250", 65_520 * 2**20, sms, design="gfx90a"))
    ((_, match), _) = detect_gpus(NoNvml(), OneGpuDriver(0), (lambda: gpus,))
    assert match is not None
    assert (match.hardware.name, match.by) == (machine, "name, memory size and SMs")


@pytest.mark.parametrize(("sms", "gib", "machine"), [(60, 16, "mi50-16gb"), (60, 32, "mi50-32gb"), (64, 32, "mi60")])
def test_one_name_of_three_products_is_told_apart_by_its_memory_too(sms: int, gib: int, machine: str) -> None:
    memory = gib * GIB - 16 * 2**20  # 16,760,832 KiB, as rocminfo shows of 16 GiB
    gpus = read_torch(fake_torch("AMD Instinct MI60 / MI50", memory, sms, design="gfx906"))
    ((_, match), _) = detect_gpus(NoNvml(), OneGpuDriver(0), (lambda: gpus,))
    assert match is not None
    assert match.hardware.name == machine


def test_torch_without_a_gpu_lists_none() -> None:
    torch = SimpleNamespace(cuda=SimpleNamespace(is_available=lambda: False))
    assert read_torch(torch) == ()


@pytest.mark.parametrize(
    ("lines", "asked"), [("cuda: Optional[str] = '12.8'\nhip = None", False), ("hip = '6.4'", True)]
)
def test_a_torch_that_is_not_for_rocm_is_not_imported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lines: str, asked: bool
) -> None:
    """Importing it takes seconds, and the CUDA driver lists the GPUs of CUDA."""
    (tmp_path / "torch").mkdir()
    (tmp_path / "torch/version.py").write_text(lines)
    (tmp_path / "torch/__init__.py").write_text("raise ImportError('libamdhip64.so is absent')")
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    monkeypatch.syspath_prepend(str(tmp_path))
    imported: list[str] = []
    monkeypatch.setattr(
        "perfmodel.hardware_catalog.torch_gpus.importlib.import_module",
        lambda name: imported.append(name) or (_ for _ in ()).throw(ImportError(name)),
    )
    assert read_torch() == ()
    assert imported == (["torch"] if asked else [])


class FakeAmdsmi:
    """The functions of `amdsmi` that are asked, with values as its reference prints them; ``lacks`` has those of later
    releases.
    """

    AmdSmiClkType = SimpleNamespace(GFX="gfx")

    class AmdSmiException(Exception):  # noqa: N818 -- its name
        """As in amdsmi."""

    def __init__(self, *, driver: bool = True, lacks: tuple[str, ...] = ()) -> None:
        self.driver, self.lacks, self.open = driver, lacks, False

    def amdsmi_init(self) -> None:
        if not self.driver:
            raise self.AmdSmiException("AMDSMI_STATUS_DRIVER_NOT_LOADED")
        self.open = True

    def amdsmi_shut_down(self) -> None:
        self.open = False

    def amdsmi_get_processor_handles(self) -> list[str]:
        return ["first"]

    def _ask(self, name: str, answer: dict[str, Any]) -> dict[str, Any]:
        if name in self.lacks:
            raise self.AmdSmiException("AMDSMI_STATUS_NOT_SUPPORTED")
        return answer

    def amdsmi_get_gpu_asic_info(self, handle: str) -> dict[str, Any]:
        answer = {"market_name": "AMD Instinct MI300X", "num_compute_units": 304, "target_graphics_version": "gfx942"}
        return self._ask("asic", answer)

    def amdsmi_get_gpu_vram_info(self, handle: str) -> dict[str, Any]:
        return self._ask("vram", {"vram_type": 4, "vram_size": 196_592, "vram_bit_width": "N/A"})

    def amdsmi_get_clock_info(self, handle: str, kind: str) -> dict[str, Any]:
        assert kind == "gfx"
        return self._ask("clock", {"clk": 132, "min_clk": 500, "max_clk": 2100})

    def amdsmi_get_pcie_info(self, handle: str) -> dict[str, Any]:
        return self._ask("pcie", {"pcie_static": {"max_pcie_width": 16, "pcie_interface_version": 5}})

    def amdsmi_get_power_cap_info(self, handle: str) -> dict[str, Any]:
        return self._ask("power", {"power_cap": 750_000_000})

    def amdsmi_get_gpu_driver_info(self, handle: str) -> dict[str, Any]:
        return self._ask("driver", {"driver_name": "amdgpu", "driver_version": "6.12.12"})


def test_amdsmi_is_read() -> None:
    amdsmi = FakeAmdsmi()
    (gpu,) = read_amdsmi(amdsmi)
    assert not amdsmi.open
    assert gpu == GpuReading(
        index=0, name="AMD Instinct MI300X", memory_bytes=196_592 * 2**20, sm_clock_hz=2.1e9, pcie_generation=5,
        pcie_width=16, power_limit_w=750.0, driver="6.12.12", compute_capability="gfx942", sm_count=304,
        source="amdsmi",
    )  # fmt: skip


def test_what_a_release_of_amdsmi_does_not_support_is_not_known() -> None:
    (gpu,) = read_amdsmi(FakeAmdsmi(lacks=("vram", "clock", "pcie", "power", "driver")))
    assert gpu.name == "AMD Instinct MI300X"
    assert (gpu.memory_bytes, gpu.sm_clock_hz, gpu.pcie_width, gpu.power_limit_w, gpu.driver) == (None,) * 4 + ("",)
    assert read_amdsmi(FakeAmdsmi(driver=False)) == ()


AMD_SMI = {
    "gpu": 1,
    "asic": {"market_name": "AMD Instinct MI325X", "num_compute_units": 304, "target_graphics_version": "gfx942"},
    "bus": {"max_pcie_width": 16, "max_pcie_speed": {"value": 32, "unit": "GT/s"}, "pcie_interface_version": "Gen 5"},
    "limit": {"max_power": {"value": 1000, "unit": "W"}},
    "vram": {"type": "HBM3E", "size": {"value": 262_128, "unit": "MB"}},
    "driver": {"name": "amdgpu", "version": "6.12.12"},
}


@pytest.mark.parametrize("document", [[AMD_SMI], {"gpu_data": [AMD_SMI]}])
def test_what_amd_smi_prints_is_read(document: Any) -> None:
    """A list, or since ROCm 7 an object; warnings may stand above it."""
    (gpu,) = read_amd_smi(lambda command: f"WARNING: low-power state\n{json.dumps(document, indent=4)}")
    assert gpu == GpuReading(
        index=1, name="AMD Instinct MI325X", memory_bytes=262_128 * 2**20, pcie_generation=5, pcie_width=16,
        power_limit_w=1000.0, driver="6.12.12", compute_capability="gfx942", sm_count=304, source="amd-smi",
    )  # fmt: skip


def test_what_rocm_smi_prints_is_read() -> None:
    """Cards in the order of their numbers; releases write their keys in other cases."""
    card = {"Card Series": "AMD Instinct MI300X OAM", "GFX Version": "gfx942", "VRAM Total Memory (B)": "206141652992"}
    old = {"Card series": "N/A", "Card model": "Radeon RX 7900 XTX", "VRAM Total Memory (B)": "25753026560"}
    printed = json.dumps({"card10": old, "card2": card, "system": {"Driver version": "6.10.5"}})
    first, second = read_rocm_smi(lambda command: printed)
    assert (first.index, first.name, first.driver, first.memory_bytes) == (
        2, "AMD Instinct MI300X OAM", "6.10.5", 206_141_652_992.0,
    )  # fmt: skip
    assert (second.index, second.name, second.compute_capability) == (10, "Radeon RX 7900 XTX", "")
    found = detect_gpus(NoNvml(), OneGpuDriver(0), (lambda: (), lambda: (first, second)))
    assert [match and match.hardware.name for _, match in found] == ["mi300x", "rx-7900-xtx"]
    rows = report(Detection(found, detect_cpu())).rows
    assert [(row["device"], row.get("source")) for row in rows[:2]] == [("gpu:2", "rocm-smi"), ("gpu:10", "rocm-smi")]


@pytest.mark.parametrize("printed", [None, "", "no devices", "[1, {}", "[]", "{}", "3", '{"gpu_data": 3}', '["card0"]'])
def test_tools_that_print_nothing_of_use_are_no_errors(printed: str | None) -> None:
    assert read_amd_smi(lambda command: printed) == ()
    assert read_rocm_smi(lambda command: printed) == ()


def test_a_tool_that_is_absent_or_fails_has_printed_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert run_tool(("amd-smi", "static")) is None
    for code, printed in ((0, "[]\n"), (1, None)):
        (tmp_path / "amd-smi").write_text(f"#!/bin/sh\necho []\nexit {code}\n")
        (tmp_path / "amd-smi").chmod(0o755)
        assert run_tool(("amd-smi", "static")) == printed


def test_the_first_that_knows_gpus_is_believed() -> None:
    gpu = GpuReading(0, "AMD Instinct MI300X", source="amdsmi")

    def refuse() -> tuple[GpuReading, ...]:
        raise AssertionError("asked in vain")

    assert [found for found, _ in detect_gpus(NoNvml(), OneGpuDriver(0), (lambda: (), lambda: (gpu,), refuse))] == [gpu]
