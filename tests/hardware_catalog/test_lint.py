"""The linter finds every mistake that is common in public tables; each fixture says where it was found."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping
from pathlib import Path

import msgspec
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from perfmodel.errors import InputFileError
from perfmodel.files import shipped_folder
from perfmodel.hardware_catalog import hardware, hardware_names, read_hardware
from perfmodel.hardware_catalog.lint import CODES, Finding, known_products, lint_file
from perfmodel.hardware_catalog.lint._draft import Draft, key_lines
from perfmodel.hardware_catalog.lint.chip import THREADS_PER_SM
from perfmodel.hardware_catalog.read import read_spec

Edits = Mapping[str, str | None]


def edited(text: str, edits: Edits) -> str:
    """Set the values of dotted keys in a TOML text; None takes the line away. A key has to be there."""
    lines = text.splitlines()
    where = key_lines(text)
    for key, value in edits.items():
        number = where[key] - 1
        if value is None:
            lines[number] = ""
        elif key.startswith("peak.") and "rate =" in lines[number]:
            lines[number] = re.sub(r'rate = "[^"]*"', f"rate = {value}", lines[number])
        else:
            lines[number] = f"{key.split('.')[-1]} = {value}"
    return "\n".join(lines) + "\n"


def shipped_text(name: str) -> str:
    return (shipped_folder() / f"{name}.toml").read_text(encoding="utf-8")


def write_edited(folder: Path, base: str, edits: Edits, *, name: str | None = None) -> Path:
    """Write an edited copy of a shipped file; with ``name``, as a product that nobody knows."""
    text = shipped_text(base)
    if name is not None:
        unknown: dict[str, str | None] = {"name": f'"{name}"', "title": f'"{name}"'}
        unknown |= {key: "[]" for key in ("aliases", "device_names") if key in key_lines(text)}
        edits = {**unknown, **edits}
    path = folder / f"{name or base}.toml"
    path.write_text(edited(text, edits), encoding="utf-8")
    return path


H100, A100_40, A100_80, L4 = "h100-sxm5-80gb", "a100-sxm4-40gb", "a100-sxm4-80gb", "l4"


#: what a figure of no product is taken for once a product of the catalog has it
_EXPLAINED = {
    "peak-differs": "other-product-peak",
    "bandwidth-differs": "other-product-bandwidth",
    "rounded-up-bandwidth": "other-product-bandwidth",
}


def found(findings: list[Finding], code: str, key: str) -> Finding:
    """Return the finding, or that which names a product with this figure, or fail with what was found instead."""
    for finding in findings:
        if finding.key == key and finding.code in (code, _EXPLAINED.get(code)):
            return finding
    raise AssertionError(f"no {code} at {key} in {[(f.code, f.key) for f in findings]}")


# (source of the mistake, base file, edits, code, key)
KNOWN_PRODUCTS: list[tuple[str, str, Edits, str, str]] = [
    # pytorch/pytorch torch/_inductor/analysis/device_info.py @ 00604d0f
    ("pytorch H100 bf16", H100, {"peak.tensor.bf16": '"1979 TFLOP/s"'}, "sparse-as-dense", "peak.tensor.bf16"),
    ("pytorch H100 fp16", H100, {"peak.tensor.fp16": '"1979 TFLOP/s"'}, "sparse-as-dense", "peak.tensor.fp16"),
    ("pytorch H100 fp8", H100, {"peak.tensor.fp8": '"3958 TFLOP/s"'}, "sparse-as-dense", "peak.tensor.fp8"),
    ("pytorch H100 int8", H100, {"peak.tensor.int8": '"3958 TOPS"'}, "sparse-as-dense", "peak.tensor.int8"),
    ("pytorch H100 tf32", H100, {"peak.tensor.tf32": '"156 TFLOP/s"'}, "other-product-peak", "peak.tensor.tf32"),
    ("pytorch L4 bf16", L4, {"peak.tensor.bf16": '"242 TFLOP/s"'}, "sparse-as-dense", "peak.tensor.bf16"),
    ("pytorch L4 fp8", L4, {"peak.tensor.fp8": '"485 TFLOP/s"'}, "sparse-as-dense", "peak.tensor.fp8"),
    (
        "pytorch L4 bandwidth",
        L4,
        {"memory.hbm.bandwidth": '"3350 GB/s"'},
        "other-product-bandwidth",
        "memory.hbm.bandwidth",
    ),
    ("pytorch A100", A100_80, {"peak.tensor.fp16": '"312.5 TFLOP/s"'}, "rounded-up-peak", "peak.tensor.fp16"),
    # pytorch/ao torchao/testing/training/roofline_utils.py
    ("ao H100", H100, {"memory.hbm.bandwidth": '"2.4 TB/s"'}, "bandwidth-differs", "memory.hbm.bandwidth"),
    # GenZ Systems/system_configs.py
    ("GenZ A100", A100_40, {"memory.hbm.bandwidth": '"1600 GB/s"'}, "rounded-up-bandwidth", "memory.hbm.bandwidth"),
    # tritonbench/utils/gpu_utils.py
    ("tritonbench H100 fp32", H100, {"peak.vector.fp32": '"494 TFLOP/s"'}, "other-dtype-peak", "peak.vector.fp32"),
    (
        "tritonbench H100 bandwidth",
        H100,
        {"memory.hbm.bandwidth": '"2000 GB/s"'},
        "other-product-bandwidth",
        "memory.hbm.bandwidth",
    ),
    (
        "tritonbench B200 as H100",
        "b200-sxm-180gb",
        {"peak.tensor.bf16": '"989.4 TFLOP/s"'},
        "other-product-peak",
        "peak.tensor.bf16",
    ),
    (
        "tritonbench B200 as H100, bandwidth",
        "b200-sxm-180gb",
        {"memory.hbm.bandwidth": '"3352 GB/s"'},
        "other-product-bandwidth",
        "memory.hbm.bandwidth",
    ),
    # triton proton/specs.py: 624e12 / (width / 8) on sm80
    ("proton fp32", A100_80, {"peak.vector.fp32": '"156 TFLOP/s"'}, "other-dtype-peak", "peak.vector.fp32"),
    ("proton fp64", A100_80, {"peak.vector.fp64": '"78 TFLOP/s"'}, "other-dtype-peak", "peak.vector.fp64"),
    # LLM-Viewer hardwares/hardware_params.py
    ("LLM-Viewer H100", H100, {"memory.hbm.bandwidth": '"3072 GB/s"'}, "bandwidth-differs", "memory.hbm.bandwidth"),
    (
        "LLM-Viewer H100 PCIe",
        "h100-pcie-80gb",
        {"memory.hbm.bandwidth": '"2048 GB/s"'},
        "rounded-up-bandwidth",
        "memory.hbm.bandwidth",
    ),
    (
        "LLM-Viewer V100",
        "v100-sxm2-16gb",
        {"peak.tensor.fp16": '"112 TFLOP/s"'},
        "other-product-peak",
        "peak.tensor.fp16",
    ),
    (
        "LLM-Viewer on-chip memory",
        A100_80,
        {"memory.l2.capacity": '"27648 KiB"'},
        "l2-differs",
        "memory.l2.capacity",
    ),
    # NeuSight device_configs
    ("NeuSight H100 TP", H100, {"peak.tensor.fp16": '"1979000 GFLOP/s"'}, "sparse-as-dense", "peak.tensor.fp16"),
    ("NeuSight L4 SMs", L4, {"chip.sm_count": "60"}, "full-die-sm-count", "chip.sm_count"),
    ("NeuSight L4 fp32", L4, {"peak.vector.fp32": '"31334 GFLOP/s"'}, "peak-differs", "peak.vector.fp32"),
    ("NeuSight H100", H100, {"memory.hbm.bandwidth": '"3430 GB/s"'}, "rounded-up-bandwidth", "memory.hbm.bandwidth"),
    ("NeuSight P4 SMs", "p4", {"chip.sm_count": "40"}, "sm-count-differs", "chip.sm_count"),
    ("NeuSight P100", "p100-pcie-16gb", {"chip.vector_clock": '"1380 MHz"'}, "clock-differs", "chip.vector_clock"),
    # threads of A100 for a chip with 1536; a die in another process
    ("rtx-4090 threads", "rtx-4090", {"chip.max_threads_per_sm": "2048"}, "fact-differs", "chip.max_threads_per_sm"),
    ("rtx-4090 process", "rtx-4090", {"chip.process": '"TSMC N7"'}, "fact-differs", "chip.process"),
    # an assumption is no source unless it says why
    (
        "assumed",
        "rtx-4090",
        {"chip.source": '"a datasheet; process: assumed"'},
        "assumption-without-reason",
        "chip.source",
    ),
    ("NeuSight MI210 L2", "mi210", {"memory.l2.capacity": '"16 MiB"'}, "l2-differs", "memory.l2.capacity"),
    # llm-analysis gpu_configs
    (
        "llm-analysis V100-SXM-16GB",
        "v100-sxm2-16gb",
        {"memory.hbm.capacity": '"32 GB"'},
        "capacity-differs",
        "memory.hbm.capacity",
    ),
    (
        "llm-analysis A100 PCIe in a node",
        "a100-pcie-40gb",
        {"link.pcie.per_direction": '"300 GB/s"'},
        "link-differs",
        "link.pcie.per_direction",
    ),
    # llm.c llmc/mfu.h
    (
        "llm.c V100-PCIE",
        "v100-pcie-32gb",
        {"chip.vector_clock": '"1530 MHz"'},
        "clock-differs",
        "chip.vector_clock",
    ),
    (
        "llm.c V100-PCIE peak",
        "v100-pcie-32gb",
        {"peak.tensor.fp16": '"125 TFLOP/s"'},
        "other-product-peak",
        "peak.tensor.fp16",
    ),
    # Vidur device_sku_config.py
    ("Vidur H100", H100, {"peak.tensor.fp16": '"1000 TFLOP/s"'}, "peak-differs", "peak.tensor.fp16"),
    ("Vidur no bandwidth", A100_80, {"memory.hbm.bandwidth": None}, "missing-bandwidth", "memory.hbm"),
    ("no SMs", A100_80, {"chip.sm_count": None}, "missing-figure", "chip.sm_count"),
    ("no power limit", A100_80, {"chip.tdp": None}, "missing-figure", "chip.tdp"),
    ("no L2", "t4", {"memory.l2.capacity": None}, "missing-figure", "memory.l2.capacity"),
    # LLMCompass configs/GA100.json: the full die
    ("LLMCompass cores", A100_80, {"chip.sm_count": "128"}, "full-die-sm-count", "chip.sm_count"),
    ("LLMCompass buffer", A100_80, {"memory.l2.capacity": '"48 MB"'}, "full-die-l2", "memory.l2.capacity"),
    # a table of Hopper products in a public repository: NVL with the PCIe product's chip and bus, sparse peaks
    ("NVL SMs", "h100-nvl-94gb", {"chip.sm_count": "114"}, "sm-count-differs", "chip.sm_count"),
    (
        "NVL bus",
        "h100-nvl-94gb",
        {"memory.hbm.bus_width_bits": "5120"},
        "bus-width-differs",
        "memory.hbm.bus_width_bits",
    ),
    ("NVL sparse", "h100-nvl-94gb", {"peak.tensor.fp16": '"1671 TFLOP/s"'}, "sparse-as-dense", "peak.tensor.fp16"),
    # inference-sim PR 816; OLMo
    ("inference-sim L40S", "l40s", {"peak.tensor.fp8": '"1466 TFLOP/s"'}, "sparse-as-dense", "peak.tensor.fp8"),
    ("OLMo B200", "b200-sxm-180gb", {"peak.tensor.bf16": "4.5e15"}, "sparse-as-dense", "peak.tensor.bf16"),
    # NVIDIA k8s-test-infra mock profiles
    (
        "mock B200 bus",
        "b200-sxm-180gb",
        {"memory.hbm.bus_width_bits": "8192"},
        "bus-width-differs",
        "memory.hbm.bus_width_bits",
    ),
    (
        "mock H100 memory clock",
        H100,
        {"memory.hbm.memory_clock": '"1593 MHz"'},
        "clock-differs",
        "memory.hbm.memory_clock",
    ),
    ("mock L40S bus", "l40s", {"memory.hbm.bus_width_bits": "256"}, "bus-width-differs", "memory.hbm.bus_width_bits"),
    ("mock B200 clock", "b200-sxm-180gb", {"chip.vector_clock": '"2100 MHz"'}, "clock-differs", "chip.vector_clock"),
    # ROCm issue 4203: torch shows one XCD; AMD's CDNA 3 white paper table 1: TF32 of the MI300A
    ("MI300X L2 in torch", "mi300x", {"memory.l2.capacity": '"4 MiB"'}, "l2-differs", "memory.l2.capacity"),
    ("MI300A TF32", "mi300x", {"peak.tensor.tf32": '"490.3 TFLOP/s"'}, "peak-differs", "peak.tensor.tf32"),
    # aiconfigurator's tables: PCIe of a generation that the driver does not show
    (
        "aiconfigurator B200 PCIe",
        "b200-sxm-180gb",
        {"link.pcie.per_direction": '"128 GB/s"'},
        "link-both-directions",
        "link.pcie.per_direction",
    ),
    # copied widely: a 6144 bit bus of the H200, 8 TB/s of the B200, 900 GB/s of the V100
    (
        "H200 bus",
        "h200-sxm-141gb",
        {"memory.hbm.bandwidth": '"4917 GB/s"'},
        "rounded-up-bandwidth",
        "memory.hbm.bandwidth",
    ),
    (
        "B200 8 TB/s",
        "b200-sxm-180gb",
        {"memory.hbm.bandwidth": '"8 TB/s"'},
        "rounded-up-bandwidth",
        "memory.hbm.bandwidth",
    ),
    (
        "V100 900 GB/s",
        "v100-sxm2-32gb",
        {"memory.hbm.bandwidth": '"900 GB/s"'},
        "rounded-up-bandwidth",
        "memory.hbm.bandwidth",
    ),
    # circulated notes on the A100: the L2 of the V100; one product's bandwidth for another
    ("A100 L2", A100_80, {"memory.l2.capacity": '"6 MiB"'}, "l2-differs", "memory.l2.capacity"),
    (
        "A100 40 with 2039",
        A100_40,
        {"memory.hbm.bandwidth": '"2039 GB/s"'},
        "other-product-bandwidth",
        "memory.hbm.bandwidth",
    ),
    (
        "A100 80 with 1555",
        A100_80,
        {"memory.hbm.bandwidth": '"1555 GB/s"'},
        "other-product-bandwidth",
        "memory.hbm.bandwidth",
    ),
    (
        "A100 80 with 1935",
        A100_80,
        {"memory.hbm.bandwidth": '"1935 GB/s"'},
        "other-product-bandwidth",
        "memory.hbm.bandwidth",
    ),
    (
        "A100 PCIe with 2039",
        "a100-pcie-80gb",
        {"memory.hbm.bandwidth": '"2039 GB/s"'},
        "other-product-bandwidth",
        "memory.hbm.bandwidth",
    ),
    # the full dies of the whitepapers
    ("GV100", "v100-sxm2-16gb", {"chip.sm_count": "84"}, "full-die-sm-count", "chip.sm_count"),
    ("GH100", H100, {"chip.sm_count": "144"}, "full-die-sm-count", "chip.sm_count"),
    ("GH100 PCIe", "h100-pcie-80gb", {"chip.sm_count": "144"}, "full-die-sm-count", "chip.sm_count"),
    ("AD102", "l40s", {"chip.sm_count": "144"}, "full-die-sm-count", "chip.sm_count"),
    ("GH100 L2", H100, {"memory.l2.capacity": '"60 MB"'}, "full-die-l2", "memory.l2.capacity"),
    ("GH100 PCIe L2", "h100-pcie-80gb", {"memory.l2.capacity": '"60 MiB"'}, "full-die-l2", "memory.l2.capacity"),
    # one boost clock for the whole of an H100
    ("one boost clock", H100, {"chip.tensor_clock": '"1980 MHz"'}, "clock-differs", "chip.tensor_clock"),
    # links of both directions together
    (
        "A100 NVLink",
        A100_80,
        {"link.nvlink.per_direction": '"600 GB/s"'},
        "link-both-directions",
        "link.nvlink.per_direction",
    ),
    (
        "H100 NVLink",
        H100,
        {"link.nvlink.per_direction": '"900 GB/s"'},
        "link-both-directions",
        "link.nvlink.per_direction",
    ),
    (
        "V100 NVLink",
        "v100-sxm2-16gb",
        {"link.nvlink.per_direction": '"300 GB/s"'},
        "link-both-directions",
        "link.nvlink.per_direction",
    ),
    ("PCIe 4", A100_80, {"link.pcie.per_direction": '"64 GB/s"'}, "link-both-directions", "link.pcie.per_direction"),
    ("PCIe in GT/s", A100_80, {"link.pcie.per_direction": '"256 GB/s"'}, "bits-for-bytes", "link.pcie.per_direction"),
    # pairs and modules of two devices
    (
        "NVL pair memory",
        "h100-nvl-94gb",
        {"memory.hbm.capacity": '"188 GiB"'},
        "pair-for-device",
        "memory.hbm.capacity",
    ),
    (
        "NVL pair bandwidth",
        "h100-nvl-94gb",
        {"memory.hbm.bandwidth": '"7.8 TB/s"'},
        "pair-for-device",
        "memory.hbm.bandwidth",
    ),
    ("MI250X module", "mi250x", {"peak.tensor.fp16": '"383 TFLOP/s"'}, "pair-for-device", "peak.tensor.fp16"),
    ("MI250X module memory", "mi250x", {"memory.hbm.capacity": '"128 GiB"'}, "pair-for-device", "memory.hbm.capacity"),
    (
        "MI250X module bandwidth",
        "mi250x",
        {"memory.hbm.bandwidth": '"3276.8 GB/s"'},
        "pair-for-device",
        "memory.hbm.bandwidth",
    ),
    # fp16 accumulation on GeForce
    ("4090 fp16", "rtx-4090", {"peak.tensor.fp16": '"330.3 TFLOP/s"'}, "fp16-accumulate", "peak.tensor.fp16"),
    ("4090 fp8", "rtx-4090", {"peak.tensor.fp8": '"660.6 TFLOP/s"'}, "fp16-accumulate", "peak.tensor.fp8"),
    # prefixes and bits
    ("GB for TB", A100_80, {"memory.hbm.bandwidth": '"2.039 GB/s"'}, "unit-1000x", "memory.hbm.bandwidth"),
    ("TB for GB", A100_80, {"memory.hbm.bandwidth": '"2039 TB/s"'}, "unit-1000x", "memory.hbm.bandwidth"),
    ("GHz for MHz", A100_80, {"chip.vector_clock": '"1410 GHz"'}, "unit-1000x", "chip.vector_clock"),
    ("MHz for kHz", A100_80, {"chip.tensor_clock": '"1.41 MHz"'}, "unit-1000x", "chip.tensor_clock"),
    ("PFLOP/s for TFLOP/s", A100_80, {"peak.tensor.bf16": '"312 PFLOP/s"'}, "unit-1000x", "peak.tensor.bf16"),
    ("MB for GB", A100_80, {"memory.hbm.capacity": '"80 MiB"'}, "unit-1000x", "memory.hbm.capacity"),
    ("bits", A100_80, {"memory.hbm.bandwidth": '"16312 GB/s"'}, "bits-for-bytes", "memory.hbm.bandwidth"),
    ("Gbit/s", A100_80, {"link.nvlink.per_direction": '"2400 Gb/s"'}, "bits-for-bytes", "link.nvlink.per_direction"),
    ("Gbps", A100_80, {"memory.hbm.bandwidth": '"2039 Gbps"'}, "bits-for-bytes", "memory.hbm.bandwidth"),
    # the rest
    ("GB for GiB", A100_80, {"memory.hbm.capacity": '"80 GB"'}, "capacity-gb-gib", "memory.hbm.capacity"),
    (
        "L1 as shared",
        A100_80,
        {"memory.shared.capacity_per_sm": '"192 KiB"'},
        "shared-memory-differs",
        "memory.shared.capacity_per_sm",
    ),
    ("no source", A100_80, {"memory.hbm.source": None}, "missing-source", "memory.hbm"),
    ("no source of peaks", A100_80, {"peak.tensor.source": None}, "missing-source", "peak.tensor"),
    ("no source of a link", A100_80, {"link.nvlink.source": '"?"'}, "missing-source", "link.nvlink"),
    ("no source of measurements", A100_80, {"sustained.source": None}, "missing-source", "sustained"),
    (
        "above the peak",
        A100_80,
        {"sustained.memory.hbm": '"2100 GB/s"'},
        "sustained-above-peak",
        "sustained.memory.hbm",
    ),
    ("cached", A100_80, {"sustained.tensor.bf16": '"500 TFLOP/s"'}, "sustained-above-peak", "sustained.tensor.bf16"),
    (
        "in GFLOP/s",
        A100_80,
        {"sustained.tensor.bf16": '"250 GFLOP/s"'},
        "sustained-implausible",
        "sustained.tensor.bf16",
    ),
    (
        "exchanged engines",
        A100_80,
        {"peak.tensor.bf16": '"39 TFLOP/s"', "peak.vector.bf16": '"312 TFLOP/s"'},
        "tensor-below-vector",
        "peak.tensor.bf16",
    ),
    (
        "exchanged dtypes",
        "l40s",
        {"peak.tensor.fp8": '"183 TFLOP/s"', "peak.tensor.tf32": '"733 TFLOP/s"'},
        "dtype-order",
        "peak.tensor.fp8",
    ),
    ("launch in ms", A100_80, {"launch.overhead": '"2.62 ms"'}, "launch-implausible", "launch.overhead"),
    ("launch in ns", A100_80, {"launch.floor": '"1.32 ns"'}, "launch-implausible", "launch.floor"),
    ("queue in ms", "mi300x", {"launch.queued": '"4.4 ms"'}, "launch-implausible", "launch.queued"),
    ("exchanged launch", A100_80, {"launch.floor": '"4 us"'}, "launch-order", "launch.floor"),
    ("L2 per clock", A100_80, {"memory.l2.bytes_per_clock": "4096"}, "bandwidth-arithmetic", "memory.l2.bandwidth"),
    ("name of another", A100_80, {"device_names": '["NVIDIA A100-SXM4-40GB"]'}, "name-claimed", "device_names"),
    ("alias of another", A100_80, {"aliases": '["h100"]'}, "name-claimed", "aliases"),
    ("negative", A100_80, {"memory.hbm.bandwidth": '"-2039 GB/s"'}, "bad-quantity", "memory.hbm.bandwidth"),
    ("wrong unit", A100_80, {"chip.tdp": '"400 GB"'}, "bad-quantity", "chip.tdp"),
    ("power in kW", H100, {"chip.tdp": '"700 kW"'}, "unit-1000x", "chip.tdp"),
    ("power in mW", A100_80, {"chip.tdp": '"400 mW"'}, "unit-1000x", "chip.tdp"),
    ("power of another", H100, {"chip.tdp": '"1000 W"'}, "power-differs", "chip.tdp"),
    ("power alone", "mi250x", {"chip.tdp_alone": '"560 kW"'}, "unit-1000x", "chip.tdp_alone"),
]


@pytest.mark.parametrize(
    ("base", "edits", "code", "key"), [row[1:] for row in KNOWN_PRODUCTS], ids=[row[0] for row in KNOWN_PRODUCTS]
)
def test_a_mistake_in_a_known_product_is_found(tmp_path: Path, base: str, edits: Edits, code: str, key: str) -> None:
    path = write_edited(tmp_path, base, edits)
    finding = found(lint_file(path), code, key)
    assert finding.file == str(path)
    line = next(iter(edits))
    if edits[line] is not None and line == key:
        assert finding.line == key_lines(path.read_text())[key]
    assert finding.message.endswith((".", "?"))
    if code not in NO_ERRORS:
        assert any(finding.severity == "error" for finding in lint_file(path))


def test_a_line_of_a_collective_is_below_its_link(tmp_path: Path) -> None:
    path = write_edited(tmp_path, A100_80, {})
    line = "\n[link.nvlink.collective.all_reduce]\nlatency = '9 us'\nbandwidth = '{}'\ndeviation = 0.1\nranks = 2\n"
    text = path.read_text()
    path.write_text(text + line.format("280 GB/s"))
    assert lint_file(path) == []
    path.write_text(text + line.format("310 GB/s"))
    finding = found(lint_file(path), "sustained-above-peak", "link.nvlink.collective.all_reduce.bandwidth")
    assert "310 GB/s is above the peak 300 GB/s" in finding.message
    assert path.read_text().splitlines()[finding.line - 1] == "bandwidth = '310 GB/s'"


#: findings that leave every bound as it is, or nearly so
NO_ERRORS = {
    "missing-figure",
    "capacity-gb-gib",
    "rounded-up-peak",
    "rounded-up-bandwidth",
    "sustained-implausible",
    "dtype-order",
}


# (what it is, base file, edits, code, key) of a product that nobody knows: arithmetic, relatives and physics
UNKNOWN_PRODUCTS: list[tuple[str, str, Edits, str, str]] = [
    # GenZ Systems/system_configs.py: GH200 1979, B100 3500, GB200 4500 beside a dense H100
    ("GenZ GH200", H100, {"peak.tensor.bf16": '"1979 TFLOP/s"'}, "sparse-as-dense", "peak.tensor.bf16"),
    # a B100 runs at 1750 TFLOP/s dense, 148 x 8192 x 1443 MHz
    (
        "GenZ B100",
        "b200-sxm-180gb",
        {"chip.tensor_clock": '"1443 MHz"', "peak.tensor.bf16": '"3500 TFLOP/s"'},
        "sparse-as-dense",
        "peak.tensor.bf16",
    ),
    ("GenZ GB200", "b200-sxm-180gb", {"peak.tensor.bf16": '"4500 TFLOP/s"'}, "sparse-as-dense", "peak.tensor.bf16"),
    # pytorch/ao roofline_utils.py: RTX 5090, 1.792e15 B/s
    (
        "ao RTX 5090",
        "rtx-4090",
        {"memory.hbm.bandwidth": "1.792e15", "memory.hbm.memory_clock": None},
        "implausible-figure",
        "memory.hbm.bandwidth",
    ),
    (
        "ao RTX 5090, bus",
        "rtx-4090",
        {
            "memory.hbm.bandwidth": "1.792e15",
            "memory.hbm.memory_clock": '"14001 MHz"',
            "memory.hbm.bus_width_bits": "512",
        },
        "unit-1000x",
        "memory.hbm.bandwidth",
    ),
    # llm-analysis gpu_configs: A10 with 28 GB on a 384 bit bus
    ("llm-analysis A10", "a40", {"memory.hbm.capacity": '"28 GiB"'}, "capacity-bus-mismatch", "memory.hbm.capacity"),
    (
        "llm-analysis A10 in GB",
        "a40",
        {"memory.hbm.capacity": '"28 GB"'},
        "capacity-bus-mismatch",
        "memory.hbm.capacity",
    ),
    # LLMCompass configs/GA100.json
    ("LLMCompass GA100", A100_80, {"chip.sm_count": "128"}, "full-die-sm-count", "chip.sm_count"),
    ("LLMCompass GA100 buffer", A100_80, {"memory.l2.capacity": '"48 MiB"'}, "full-die-l2", "memory.l2.capacity"),
    ("AD102 L2", "rtx-5000-ada", {"memory.l2.capacity": '"72 MiB"'}, "l2-above-controllers", "memory.l2.capacity"),
    ("GH100", H100, {"chip.sm_count": "144"}, "full-die-sm-count", "chip.sm_count"),
    ("bus arithmetic", H100, {"memory.hbm.bandwidth": '"3000 GB/s"'}, "bandwidth-arithmetic", "memory.hbm.bandwidth"),
    ("bits", H100, {"memory.hbm.bandwidth": '"26818 GB/s"'}, "bits-for-bytes", "memory.hbm.bandwidth"),
    ("NVLink", H100, {"link.nvlink.per_direction": '"900 GB/s"'}, "link-both-directions", "link.nvlink.per_direction"),
    ("PCIe", H100, {"link.pcie.per_direction": '"128 GB/s"'}, "link-both-directions", "link.pcie.per_direction"),
    (
        "PCIe of another generation",
        H100,
        {"link.pcie.generation": "4"},
        "link-both-directions",
        "link.pcie.per_direction",
    ),
    (
        "shared memory",
        H100,
        {"memory.shared.capacity_per_sm": '"256 KiB"'},
        "shared-memory-differs",
        "memory.shared.capacity_per_sm",
    ),
    ("clock", H100, {"chip.vector_clock": '"1980 GHz"'}, "unit-1000x", "chip.vector_clock"),
    (
        "ridge point",
        H100,
        {"memory.hbm.bandwidth": '"100 MB/s"', "memory.hbm.memory_clock": None},
        "implausible-ridge-point",
        "peak.tensor.bf16",
    ),
    ("memory", H100, {"memory.hbm.capacity": '"80 PB"'}, "unit-1000x", "memory.hbm.capacity"),
    ("L2 in GiB", H100, {"memory.l2.capacity": '"50 GiB"'}, "unit-1000x", "memory.l2.capacity"),
    ("L2 in KiB", H100, {"memory.l2.capacity": '"50 KiB"'}, "unit-1000x", "memory.l2.capacity"),
    ("last level", "mi300x", {"memory.llc.capacity": '"256 GiB"'}, "unit-1000x", "memory.llc.capacity"),
    ("PCIe of no generation", H100, {"link.pcie.generation": "9"}, "link-differs", "link.pcie.generation"),
    ("power", H100, {"chip.tdp": '"700 kW"'}, "unit-1000x", "chip.tdp"),
    # what nothing is computed from
    ("a cluster for a host", H100, {"cluster.gpus_per_node": "5000"}, "implausible-figure", "cluster.gpus_per_node"),
    ("rack for host", "gb200-nvl72", {"cluster.gpus_per_node": "72"}, "implausible-figure", "cluster.gpus_per_node"),
    ("hall for rack", "gb200-nvl72", {"link.nvlink.domain": "7200"}, "implausible-figure", "link.nvlink.domain"),
    ("ms for us", H100, {"cluster.alpha": '"14 ms"'}, "implausible-figure", "cluster.alpha"),
    ("percent", H100, {"cluster.nic_efficiency": "0.0085"}, "implausible-figure", "cluster.nic_efficiency"),
    ("MB for GB", "gb200-nvl72", {"cluster.host_memory": '"240 MB"'}, "implausible-figure", "cluster.host_memory"),
    ("MiB, KiB", H100, {"memory.l1.capacity_per_sm": '"256 MiB"'}, "implausible-figure", "memory.l1.capacity_per_sm"),
    ("all SMs", H100, {"memory.registers.capacity_per_sm": '"33 MiB"'}, "implausible-figure",
     "memory.registers.capacity_per_sm"),
    ("lanes for SMs", "mi300x", {"chip.sm_count": "19456"}, "implausible-figure", "chip.sm_count"),
    ("copies of each SM", H100, {"memory.l2.copies": "132"}, "implausible-figure", "memory.l2.copies"),
    ("no capability", H100, {"compute_capability": '"foo"'}, "bad-compute-capability", "compute_capability"),
    ("sm_90", H100, {"compute_capability": '"sm_90"'}, "bad-compute-capability", "compute_capability"),
    ("CUDA's of AMD", "mi300x", {"compute_capability": '"9.4"'}, "bad-compute-capability", "compute_capability"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("found_text", "written", "code", "key"),
    [
        ('process = "TSMC 4N"', 'process = "TSMC 4"', "unknown-process", "chip.process"),
        ('sparse_2to4 = "1978.8 ', 'sparse_2to4 = "3957.8 ', "sparse-differs", "peak.tensor.bf16.sparse_2to4"),
    ],
)
def test_what_changes_little_or_nothing_is_a_warning(
    tmp_path: Path, found_text: str, written: str, code: str, key: str
) -> None:
    path = write_edited(tmp_path, H100, {}, name="my-gpu")
    path.write_text(path.read_text(encoding="utf-8").replace(found_text, written), encoding="utf-8")
    assert found(lint_file(path), code, key).severity == "warning"


def test_a_module_of_few_watts_is_no_mistake_of_kilowatts(tmp_path: Path) -> None:
    edits: Edits = {"name": '"module"', "aliases": "[]", "device_names": "[]", "chip.tdp": '"7 W"'}
    codes = {finding.code for finding in lint_file(write_edited(tmp_path, "t4", edits)) if finding.key == "chip.tdp"}
    assert not codes


@pytest.mark.parametrize(
    ("base", "edits", "code", "key"), [row[1:] for row in UNKNOWN_PRODUCTS], ids=[row[0] for row in UNKNOWN_PRODUCTS]
)
def test_a_mistake_in_a_product_that_nobody_knows_is_found(
    tmp_path: Path, base: str, edits: Edits, code: str, key: str
) -> None:
    assert found(lint_file(write_edited(tmp_path, base, edits, name="my-gpu")), code, key).severity == "error"


@pytest.mark.parametrize("name", hardware_names())
def test_a_shipped_file_under_a_name_of_its_own_has_no_errors(tmp_path: Path, name: str) -> None:
    findings = lint_file(write_edited(tmp_path, name, {}, name="my-gpu"))
    # a GeForce accumulates in fp32 at half the rate of its relatives, and an H800 has next to no fp64, which arithmetic
    # alone cannot know
    allowed = {"flop-per-clock"} if "GeForce" in hardware(name).title or name.startswith("h800") else set()
    assert {finding.code for finding in findings} <= allowed


def test_a_rate_of_scaled_operands_is_once_or_twice_that_of_others(tmp_path: Path) -> None:
    path = tmp_path / "rtx-5090.toml"
    path.write_text(shipped_text("rtx-5090").replace('microscaled = "838 TFLOP/s"', 'microscaled = "383 TFLOP/s"'))
    finding = found(lint_file(path), "microscaled-peak", "peak.tensor.fp8.microscaled")
    assert "383 TFLOP/s" in finding.message


def test_flop_per_clock_of_the_sparse_rate_are_found_with_the_rate(tmp_path: Path) -> None:
    text = shipped_text(H100).replace("4096", "8192").replace("989.4", "1978.8")
    path = tmp_path / "my-gpu.toml"
    path.write_text(edited(text, {"name": '"my-gpu"', "aliases": "[]", "device_names": "[]"}))
    message = found(lint_file(path), "flop-per-clock", "peak.tensor.bf16").message
    assert "found 8192" in message
    assert "has 4096" in message


def test_where_the_file_has_no_flop_per_clock_the_relatives_tell_sparse_from_dense(tmp_path: Path) -> None:
    text = shipped_text(H100).replace(", flop_per_clock_per_sm = 4096", "").replace('"989.4', '"1979')
    path = tmp_path / "my-gpu.toml"
    path.write_text(edited(text, {"name": '"my-gpu"', "aliases": "[]", "device_names": "[]"}))
    assert "989.4 TFLOP/s" in found(lint_file(path), "sparse-as-dense", "peak.tensor.bf16").message


def test_a_network_port_in_gbit_as_gbyte(tmp_path: Path) -> None:
    # llm-analysis: inter_node_bandwidth_in_GB_per_sec = 200, commented "200Gbps HDR": right for eight ports a node
    nic = '[link.nic]\nper_direction = "200 GB/s"\nsource = "200 Gbit/s HDR"\n'
    path = tmp_path / f"{A100_80}.toml"
    path.write_text(shipped_text(A100_80) + nic)
    assert "25 GB/s" in found(lint_file(path), "bits-for-bytes", "link.nic.per_direction").message
    path.write_text(shipped_text(A100_80) + nic.replace('"200 GB/s"', '"25 GB/s"'))
    assert lint_file(path) == []


def test_several_products_have_a_number_and_one_has_it(tmp_path: Path) -> None:
    of_several = lint_file(write_edited(tmp_path, A100_80, {"chip.sm_count": "132"}))
    assert "h200-sxm-141gb, h800-sxm5-80gb have 132." in found(of_several, "sm-count-differs", "chip.sm_count").message
    of_one = lint_file(write_edited(tmp_path, H100, {"chip.sm_count": "100"}))
    assert "rtx-5000-ada has 100." in found(of_one, "sm-count-differs", "chip.sm_count").message


def test_sixty_mib_of_l2_are_right_for_other_hopper_products(tmp_path: Path) -> None:
    assert lint_file(write_edited(tmp_path, "h200-sxm-141gb", {"memory.l2.capacity": '"60 MiB"'})) == []


def test_datasheet_rounding_is_no_error(tmp_path: Path) -> None:
    edits = {
        "peak.vector.fp32": '"66.9 TFLOP/s"',
        "memory.hbm.bandwidth": '"3350 GB/s"',
        "peak.tensor.bf16": '"989 TFLOP/s"',
    }
    assert lint_file(write_edited(tmp_path, H100, edits)) == []


@pytest.mark.parametrize(
    ("text", "code", "line"),
    [
        ("name = ", "syntax", 1),
        ("", "syntax", 1),
        ('name = "x"\nvendor = 3\n', "schema", 2),
        ('name = "x"\nvendor = "v"\n', "schema", 1),
        ('name = "x"\nvendor = "v"\narchitecture = "a"\n[memory.hbm]\nbandwith = "1 TB/s"\n[peak]\n', "schema", 5),
        ('name = "x"\nvendor = "v"\narchitecture = "a"\n[memory.hmb]\n[peak.vector]\nfp32 = 1e12\n', "schema", 4),
    ],
)
def test_a_file_that_does_not_parse_is_a_finding_with_a_line(tmp_path: Path, text: str, code: str, line: int) -> None:
    path = tmp_path / "x.toml"
    path.write_text(text)
    findings = lint_file(path)
    assert (code, "error", line) in {(finding.code, finding.severity, finding.line) for finding in findings}
    assert not [finding for finding in findings if str(tmp_path) in finding.message]


SEVERAL_ERRORS = """\
name = "mine"
vendor = 3
kind = "GPU"
aliases = ["a", 5, "b", 6]
colour = "red"
[chip]
sm_cont = 108
tdp = "400 Wh"
vector_clock = "-1 GHz"
matrix_instruction = "mma"
source = "a document"
[memory.hbm]
capacity = "40 GiB"
bandwith = "1555 GB/s"
copies = 0
sorce = "a document"
[memory.l9]
capacity = "1 MiB"
[peak.vector]
fp32 = "19.5 TFLOP/s"
fp33 = "19.5 TFLOP/s"
fp64 = { clock = "1 GHz" }
[link.pcie]
generation = "four"
per_direction = "32 GB/s"
[kernels]
fp8_tiles = { "lib-1.2" = [[64, 0, 8], [64, 64]], other = [[64, 64]] }
[sustained.memory]
hbm = [1]
l2 = "3 TB/s"
"""
#: each error by itself: the line, a key of the file, what has to be found and what is allowed
ERRORS = [
    (1, "", "'architecture'", "missing"),
    (2, "vendor", "3", "`str`"),
    (3, "kind", "'GPU'", "Allowed: 'gpu', 'cpu'"),
    (4, "aliases[1]", "5", "`str`"),
    (4, "aliases[3]", "6", "`str`"),
    (5, "", "'colour'", "Allowed: name, vendor"),
    (7, "chip", "'sm_cont'", "Did you mean 'sm_count'? Allowed: sm_count, process"),
    (8, "chip.tdp", "400 Wh", "W"),
    (9, "chip.vector_clock", "'-1 GHz'", "not positive"),
    (10, "chip.matrix_instruction", "'mma'", "Allowed: '', 'mma.sync', 'wgmma'"),
    (15, "memory.hbm", "copies = 0", "below 1"),
    (14, "memory.hbm", "'bandwith'", "Did you mean 'bandwidth'? Allowed: capacity"),
    (16, "memory.hbm", "'sorce'", "Did you mean 'source'?"),
    (17, "memory", "'l9'", "Allowed: dram, hbm"),
    (21, "peak.vector", "'fp33'", "Allowed: bf16"),
    (22, "peak.vector.fp64", "'rate'", "missing"),
    (24, "link.pcie.generation", "'four'", "`int"),
    (27, "kernels.fp8_tiles.lib-1.2", "0", ">= 1"),
    (29, "sustained.memory.hbm", "[1]", "| str`"),
    (30, "sustained.memory", "'l2'", "Allowed: hbm"),
]


def test_all_errors_of_a_file_are_found_at_once_with_what_was_found_and_what_is_allowed(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(SEVERAL_ERRORS)
    errors = [finding for finding in lint_file(path) if finding.code in ("schema", "bad-quantity", "bits-for-bytes")]
    said = "\n".join(f"{finding.line} {finding.key}: {finding.message}" for finding in errors)
    for line, key, wrong, allowed in ERRORS:
        at = [finding.message for finding in errors if (finding.line, finding.key) == (line, key)]
        assert any(wrong in message and allowed in message for message in at), f"{line} {key} {wrong}, in:\n{said}"
    assert len(errors) == len(ERRORS), said


@pytest.mark.parametrize(
    ("edits", "said"),
    [
        ({"chip.sm_count": "0"}, "chip.sm_count: expected `int` >= 1. Found: 0."),
        ({"chip.matrix_instruction": '"mma"'}, "'mma'. Allowed: '', 'mma.sync', 'wgmma'"),
        ({"aliases": '["a", 5]'}, "Found: 5."),
        ({"chip.tdp": "[700]"}, "Found: [700]."),
        ({"chip.tdp": '"700 W"\nsm_cont = 5'}, "Did you mean 'sm_count'? Allowed: sm_count, process"),
        ({"launch.floor": '"2 us"\nflor = 5'}, "Did you mean 'floor'? Allowed: floor, overhead"),
    ],
)
def test_the_reader_says_what_the_linter_says(tmp_path: Path, edits: Edits, said: str) -> None:
    path = write_edited(tmp_path, H100, edits)
    with pytest.raises(InputFileError) as refused:
        read_hardware(path)
    assert said in str(refused.value)
    assert any(said in f"{finding.key}: {finding.message}" for finding in lint_file(path))


@pytest.mark.parametrize(
    ("key", "number", "remedy"),
    [
        ("memory.hbm.capacity", "80e9", "'74.51 GiB' if it is in bytes"),
        ("memory.hbm.capacity", "80", "'80 GiB'"),
        ("memory.hbm.bandwidth", "3352", "'3352 GB/s'"),
        ("memory.hbm.bandwidth", '"3352"', "'3352 GB/s'"),
        ("memory.hbm.bandwidth", "3352e9", "'3.352 TB/s'"),
        ("peak.tensor.bf16", "989.4e12", "'989.4 TFLOP/s'"),
        ("chip.tensor_clock", "1830000000", "'1.83 GHz'"),
        ("launch.floor", "2.4e-6", "'2.4 us' if it is in seconds"),
        ("chip.tdp", "700", "'700 W'"),
    ],
)
def test_a_number_without_a_unit_is_one_error_with_the_unit_that_was_meant(
    tmp_path: Path, key: str, number: str, remedy: str
) -> None:
    path = write_edited(tmp_path, H100, {key: number})
    with pytest.raises(InputFileError, match="has no unit") as refused:
        read_hardware(path)
    first, *others = lint_file(path)
    assert (first.key, first.severity, first.code) == (key, "error", "bad-quantity")
    assert first.message in str(refused.value)
    assert remedy in first.message
    # read as it was meant the figure agrees with all others
    assert not [finding for finding in others if finding.severity == "error" and finding.key != key]


@pytest.mark.parametrize(
    ("base", "key"), [("mi300x", "link.xgmi.per_peer"), (H100, "cluster.alpha"), (H100, "cluster.host_memory")]
)
def test_every_quantity_of_a_file_needs_its_unit(tmp_path: Path, base: str, key: str) -> None:
    table, _, name = key.rpartition(".")
    text = shipped_text(base)
    if key in key_lines(text):
        text = edited(text, {key: "64"})
    else:
        head = f"[{table}]\n"
        text = text.replace(head, f"{head}{name} = 64\n") if head in text else f"{text}\n{head}{name} = 64\n"
    path = tmp_path / f"{base}.toml"
    path.write_text(text)
    assert (lint_file(path)[0].code, lint_file(path)[0].key) == ("bad-quantity", key)


def test_what_follows_from_an_error_is_no_second_one_and_what_does_not_is(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(SEVERAL_ERRORS)
    missing = {(finding.code, finding.key) for finding in lint_file(path) if finding.code.startswith("missing-")}
    # of hbm the bandwidth and the source are misspelt, as are the chip's SMs; the others never had a source
    assert missing == {
        ("missing-figure", "memory.l2.capacity"),
        ("missing-source", "peak.vector"),
        ("missing-source", "link.pcie"),
        ("missing-source", "kernels"),
    }


@pytest.mark.parametrize(
    "document",
    [
        "[1, 2]",
        '"text"',
        "null",
        "{}",
        '{"peak": {"tensor": {"fp16": {"rate": "-1 TFLOP/s"}}}}',
        '{"memory": 5, "peak": [1], "chip": "x"}',
    ],
)
def test_a_document_of_any_shape_ends_with_its_errors(tmp_path: Path, document: str) -> None:
    path = tmp_path / "x.json"
    path.write_text(document)
    findings = lint_file(path)
    assert any(finding.severity == "error" for finding in findings)
    if '"chip"' in document:
        assert {"memory", "peak", "chip"} <= {finding.key for finding in findings}


def test_a_file_that_is_not_there_is_an_error_of_its_own(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "none.toml"):
        with pytest.raises(InputFileError):
            lint_file(path)


def test_yaml_and_json_are_checked_without_lines(tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    path.write_text(
        '{"name": "x", "vendor": "v", "architecture": "a", "memory": {"hbm": {}}, '
        '"peak": {"vector": {"fp32": "1 TFLOP/s"}}}'
    )
    findings = lint_file(path)
    assert {finding.code for finding in findings} == {
        *("missing-source", "missing-bandwidth", "missing-figure", "unknown-vendor"),
    }
    assert {finding.line for finding in findings} == {None}


def test_every_code_of_the_fixtures_is_documented_and_every_code_has_a_fixture() -> None:
    used = {row[3] for row in (*KNOWN_PRODUCTS, *UNKNOWN_PRODUCTS)}
    elsewhere = {"syntax", "schema", "flop-per-clock", "name-differs-from-file", "peak-arithmetic"}
    elsewhere |= {"unknown-process", "sparse-differs"}
    elsewhere |= {"fact-without-source", "unknown-vendor", "unknown-architecture", "microscaled-peak"}
    assert set(CODES) - used == elsewhere - used


def test_a_fact_that_no_datasheet_gives_needs_a_source_or_a_reason(tmp_path: Path) -> None:
    def keys(source: str) -> set[str]:
        path = write_edited(tmp_path, "h100-sxm5-80gb", {"chip.source": f'"{source}"', "memory.l2.source": '"a sheet"'})
        return {finding.key for finding in lint_file(path) if finding.code == "fact-without-source"}

    facts = {"chip.process", "chip.warp_schedulers_per_sm", "chip.exponentials_per_clock_per_sm"}
    assert keys("a datasheet") == {*facts, "chip.matrix_instruction", "memory.l2.copies"}
    named = "a datasheet; process: a paper; warp schedulers: a guide; exponentials: assumed: as on the A100"
    assert keys(named) == {"chip.matrix_instruction", "memory.l2.copies"}


def test_threads_per_sm_of_an_unknown_product_are_those_of_its_compute_capability(tmp_path: Path) -> None:
    # 64 warps of 32 threads are consistent with 2048 threads, which compute capability 8.9 does not have
    edits = {"chip.max_threads_per_sm": "2048", "chip.max_warps_per_sm": "64", "chip.process": '"Samsung 8N"'}
    findings = lint_file(write_edited(tmp_path, "rtx-4090", edits, name="my-gpu"))
    threads = found(findings, "fact-differs", "chip.max_threads_per_sm")
    assert (threads.severity, threads.message) == ("warning", "found 2048, compute capability 8.9 has 1536.")
    assert (
        found(findings, "fact-differs", "chip.max_warps_per_sm").message == "found 64, compute capability 8.9 has 48."
    )
    assert [finding for finding in findings if finding.key == "chip.process"] == [], "each die has its own process"


def test_machines_without_a_compute_capability_are_not_related(tmp_path: Path) -> None:
    path = write_edited(tmp_path, "t4", {}, name="my-gpu")
    draft = Draft(str(path), read_spec(path), {}, catalog=known_products())
    assert {"rtx-2080-ti", "t4", "titan-rtx"} <= {other.spec.name for other in draft.family()}
    assert {other.spec.compute_capability for other in draft.family()} == {"7.5"}
    draft.spec.compute_capability = ""
    strange = msgspec.structs.replace(draft.spec, name="strange")
    assert list(dataclasses.replace(draft, catalog=(dataclasses.replace(draft, spec=strange),)).family()) == []


def test_warps_and_threads_agree(tmp_path: Path) -> None:
    path = write_edited(tmp_path, "rtx-4090", {"chip.max_warps_per_sm": "32"}, name="my-gpu")
    assert "32 warps x 32 threads = 1024" in found(lint_file(path), "fact-differs", "chip.max_threads_per_sm").message


def test_the_threads_of_each_compute_capability_are_those_of_the_shipped_machines() -> None:
    for machine in map(hardware, hardware_names()):
        threads = THREADS_PER_SM.get(machine.compute_capability)
        assert threads is None or threads == machine.chip["max_threads_per_sm"], machine.name


@pytest.mark.parametrize(
    ("edits", "code", "hint"),
    [
        # the architecture as NVIDIA's whitepaper writes it: predictions leave the machines of Ada out without a word
        ({"architecture": '"Ada Lovelace"'}, "unknown-architecture", "Known: Ada, Ampere,"),
        ({"architecture": '"Amper"'}, "unknown-architecture", "Did you mean 'Ampere'?"),
        ({"vendor": '"NVIDA"'}, "unknown-vendor", "Did you mean 'NVIDIA'?"),
    ],
)
def test_a_machine_that_shares_nothing_with_others_is_a_warning(
    tmp_path: Path, edits: Edits, code: str, hint: str
) -> None:
    (finding,) = lint_file(write_edited(tmp_path, L4, edits, name="my-gpu"))
    assert (finding.code, finding.severity, finding.key) == (code, "warning", next(iter(edits)))
    assert hint in finding.message
    assert lint_file(write_edited(tmp_path, L4, {}, name="my-gpu")) == []


def test_a_name_that_is_not_the_files_is_a_warning_where_files_are_found_by_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "other.toml"
    path.write_text(shipped_text("t4"))
    # a file elsewhere is named by its path, as that which `calibrate -o` wrote
    assert "name-differs-from-file" not in {finding.code for finding in lint_file(path)}
    monkeypatch.setenv("PERFMODEL_HARDWARE", str(tmp_path))
    assert found(lint_file(path), "name-differs-from-file", "name").severity == "warning"


def test_a_board_that_is_limited_to_less_power_than_its_datasheet_is_a_warning(tmp_path: Path) -> None:
    finding = found(lint_file(write_edited(tmp_path, H100, {"chip.tdp": '"600 W"'})), "power-differs", "chip.tdp")
    assert finding.severity == "warning"
    assert "700 W" in finding.message


def test_a_copy_of_a_file_that_keeps_the_names_of_its_machine_is_a_warning(tmp_path: Path) -> None:
    """In PERFMODEL_HARDWARE it would answer to ``--on h100``."""
    path = tmp_path / "my-gpu.toml"
    edits: dict[str, str | None] = {"name": '"my-gpu"', "title": '"My GPU"'}
    path.write_text(edited(shipped_text(H100), edits))
    for key, name in (("aliases", "'h100'"), ("device_names", "'NVIDIA H100 80GB HBM3'")):
        finding = found(lint_file(path), "name-claimed", key)
        assert finding.severity == "warning"
        assert name in finding.message
        assert H100 in finding.message
    path.write_text(edited(path.read_text(), {"aliases": '["my-gpu-2"]', "device_names": "[]"}))
    assert not [finding for finding in lint_file(path) if finding.code == "name-claimed"]
    # a file of the machine itself, as calibrate writes it, keeps its names
    assert not [f for f in lint_file(write_edited(tmp_path, H100, {})) if f.code == "name-claimed"]
    alias = tmp_path / "h100.toml"
    alias.write_text(edited(path.read_text(), {"name": '"h100"'}))
    assert found(lint_file(alias), "name-claimed", "name").severity == "warning"


def test_a_peak_that_is_not_the_product_of_its_factors(tmp_path: Path) -> None:
    path = write_edited(tmp_path, "t4", {"peak.vector.fp32": '"9 TFLOP/s"'}, name="my-gpu")
    # 40 SMs x 128 x 1590 MHz = 8.141 TFLOP/s
    assert "8.141 TFLOP/s" in found(lint_file(path), "peak-arithmetic", "peak.vector.fp32").message


RATE_KEYS = [
    (name, key)
    for name in hardware_names()
    for key in key_lines(shipped_text(name))
    if (key.startswith("peak.") and key.count(".") == 2 and not key.endswith(("source", "note")))
    or (key.startswith("memory.") and key.endswith(".bandwidth"))
    or key.endswith(".per_direction")
]


@pytest.mark.waiting
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=120)
@given(which=st.sampled_from(RATE_KEYS), factor=st.sampled_from([2.0, 8.0, 1000.0, 0.001]))
def test_any_rate_that_is_scaled_is_an_error(tmp_path: Path, which: tuple[str, str], factor: float) -> None:
    from perfmodel.hardware_catalog.lint._draft import quantities, values_of
    from perfmodel.hardware_catalog.read import read_spec

    name, key = which
    original = tmp_path / f"{name}.toml"
    original.write_text(shipped_text(name))
    spec = read_spec(original)
    value = values_of(spec)[0][key] * factor
    findings = lint_file(write_edited(tmp_path, name, {key: f'"{value!r} {quantities(spec)[key].unit}"'}))
    assert any(finding.severity == "error" and finding.key == key for finding in findings)


JUNK = [
    "0",
    "-1",
    "1e400",
    "nan",
    '""',
    '"x"',
    "true",
    "[]",
    "{}",
    "[[1]]",
    '"1e30 TB/s"',
    "10000000000000000000000",
    "=",
]


@pytest.mark.waiting
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=150)
@given(
    name=st.sampled_from(hardware_names()),
    hits=st.lists(st.tuples(st.integers(0, 200), st.sampled_from([*JUNK, None])), min_size=1, max_size=4),
    suffix=st.sampled_from(["toml", "json", "yaml"]),
)
@example(name="a10", hits=[(0, "{}")], suffix="toml")
def test_no_file_brings_the_linter_or_the_reader_down(
    tmp_path: Path, name: str, hits: list[tuple[int, str | None]], suffix: str
) -> None:
    lines = shipped_text(name).splitlines()
    for where, junk in hits:
        number = where % len(lines)
        lines[number] = "" if junk is None else re.sub(r"=.*", lambda _, new=junk: f"= {new}", lines[number], count=1)
    path = tmp_path / f"{name}.{suffix}"
    path.write_text("\n".join(lines))
    assert all(finding.code in CODES and finding.message for finding in lint_file(path))
    try:
        read_hardware(path)
    except InputFileError:
        assert lint_file(path)[0].severity == "error"
