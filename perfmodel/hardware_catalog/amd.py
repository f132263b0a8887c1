"""What AMD's tools say about its GPUs: the module `amdsmi` of AMD SMI, and what ``amd-smi`` and ``rocm-smi`` print."""

from __future__ import annotations

import importlib
import json
import re
import shutil
import subprocess
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from perfmodel.hardware_catalog.gpu_reading import GpuReading

_MEBI = 2.0**20
#: a tool that waits for a hung driver is given up [s]
_PATIENCE_S = 20.0
_AMD_SMI = ("amd-smi", "static", "--json")
_ROCM_SMI = ("rocm-smi", "--showproductname", "--showmeminfo", "vram", "--showdriverversion", "--json")
#: the sources of readings here, whose numbers of GPUs are not torch's
AMD_SOURCES = ("amdsmi", "amd-smi", "rocm-smi")
#: a command and its arguments -> what it printed; None where it is absent or failed
Runner = Callable[[Sequence[str]], str | None]


def read_amdsmi(amdsmi: Any = None) -> tuple[GpuReading, ...]:
    """Return a reading of each GPU by the module `amdsmi`; none where there is no such module, driver or GPU.

    ``amdsmi`` stands in for the module in tests. It is that of docs.amd.com, "AMD SMI Python API reference" 6.4.
    """
    if amdsmi is None:
        try:
            amdsmi = importlib.import_module("amdsmi")
        except Exception:  # noqa: BLE001 -- without AMD's library it raises what its search for it meets, KeyError, too
            return ()
    try:
        amdsmi.amdsmi_init()
    except amdsmi.AmdSmiException:
        return ()
    try:
        handles = amdsmi.amdsmi_get_processor_handles()
        return tuple(_by_module(amdsmi, index, handle) for index, handle in enumerate(handles))
    except amdsmi.AmdSmiException:
        return ()
    finally:
        amdsmi.amdsmi_shut_down()


def _by_module(amdsmi: Any, index: int, handle: Any) -> GpuReading:
    def ask(call: str, *arguments: Any) -> Mapping[str, Any]:
        """Return what one query says, nothing where this release or GPU does not support it."""
        try:
            found = getattr(amdsmi, call)(handle, *arguments)
        except (amdsmi.AmdSmiException, AttributeError):
            return {}
        return found if isinstance(found, Mapping) else {}

    asic, vram = ask("amdsmi_get_gpu_asic_info"), ask("amdsmi_get_gpu_vram_info")
    pcie = ask("amdsmi_get_pcie_info").get("pcie_static", {})
    kinds = getattr(amdsmi, "AmdSmiClkType", None)
    clock = ask("amdsmi_get_clock_info", kinds.GFX) if kinds else {}
    return GpuReading(
        index=index,
        name=_text(asic.get("market_name")),
        memory_bytes=_scaled(vram.get("vram_size"), _MEBI),
        sm_clock_hz=_scaled(clock.get("max_clk"), 1e6),
        pcie_generation=_whole(pcie.get("pcie_interface_version")),
        pcie_width=_whole(pcie.get("max_pcie_width")),
        power_limit_w=_scaled(ask("amdsmi_get_power_cap_info").get("power_cap"), 1e-6),
        driver=_text(ask("amdsmi_get_gpu_driver_info").get("driver_version")),
        compute_capability=_text(asic.get("target_graphics_version")),
        sm_count=_whole(asic.get("num_compute_units")),
        source="amdsmi",
    )


def run_tool(command: Sequence[str]) -> str | None:
    """Return what a command prints; None where it is not installed, fails, or hangs."""
    path = shutil.which(command[0])
    if path is None:
        return None
    try:
        done = subprocess.run(  # noqa: S603 -- a fixed command without input of the user's
            [path, *command[1:]], capture_output=True, timeout=_PATIENCE_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.decode("utf-8", "replace") if done.returncode == 0 else None


def read_amd_smi(run: Runner = run_tool) -> tuple[GpuReading, ...]:
    """Return the GPUs that ``amd-smi static --json`` lists; none where it is absent, fails or lists none."""
    document = _document(run(_AMD_SMI))
    # a list of GPUs, since ROCm 7 in an object
    listed = document.get("gpu_data") if isinstance(document, dict) else document
    gpus = [gpu for gpu in listed if isinstance(gpu, dict)] if isinstance(listed, list) else []
    return tuple(_by_amd_smi(index, gpu) for index, gpu in enumerate(gpus))


def _by_amd_smi(index: int, gpu: Mapping[str, Any]) -> GpuReading:
    def table(name: str) -> Mapping[str, Any]:
        found = gpu.get(name)
        return found if isinstance(found, dict) else {}

    asic, bus, limit = table("asic"), table("bus"), table("limit")
    return GpuReading(
        index=_whole(gpu.get("gpu"), default=index),
        name=_text(asic.get("market_name")),
        memory_bytes=_scaled(table("vram").get("size"), _MEBI),
        pcie_generation=_whole(bus.get("pcie_interface_version")),
        pcie_width=_whole(bus.get("max_pcie_width")),
        power_limit_w=_scaled(limit.get("max_power"), 1.0),
        driver=_text(table("driver").get("version")),
        compute_capability=_text(asic.get("target_graphics_version")),
        sm_count=_whole(asic.get("num_compute_units")),
        source="amd-smi",
    )


def read_rocm_smi(run: Runner = run_tool) -> tuple[GpuReading, ...]:
    """Return the GPUs that ``rocm-smi --json`` lists under "card0" and so on; none where it is absent or fails."""
    document = _document(run(_ROCM_SMI))
    if not isinstance(document, dict):
        return ()
    system = document.get("system")
    driver = _text(_of(system, "driver version")) if isinstance(system, dict) else ""
    cards = ((re.fullmatch(r"card(\d+)", key), card) for key, card in document.items())
    found = sorted((int(key[1]), card) for key, card in cards if key and isinstance(card, dict))
    return tuple(
        GpuReading(
            index=index,
            name=_name_of_card(card),
            memory_bytes=_scaled(_of(card, "vram total memory (b)"), 1.0),
            driver=driver,
            compute_capability=_text(_of(card, "gfx version")),
            source="rocm-smi",
        )
        for index, card in found
    )


def _name_of_card(card: Mapping[str, Any]) -> str:
    """Return the product of a card: its series, or its model, which may be the number of the device."""
    names = (_text(_of(card, key)) for key in ("card series", "card model"))
    return next((name for name in names if name), "")


def _of(table: Mapping[str, Any], key: str) -> Any:
    """Return the value of a key in any case: releases write "Card series" and "Card Series"."""
    return next((value for name, value in table.items() if name.lower() == key), None)


def _document(text: str | None) -> Any:
    """Return the JSON that a tool printed, below warnings of its own; None where there is none."""
    lines = (text or "").splitlines()
    start = next((number for number, line in enumerate(lines) if line.startswith(("{", "["))), len(lines))
    try:
        return json.loads("\n".join(lines[start:]))
    except ValueError:
        return None


def _text(value: Any) -> str:
    """Return text, and "" for what the tools write where they know nothing."""
    return "" if value in (None, "N/A") else str(value).strip()


def _number(value: Any) -> float | None:
    """Return a number, also of ``{"value": 750, "unit": "W"}`` and of "Gen 5"; None for others."""
    if isinstance(value, dict):
        value = value.get("value")
    found = re.search(r"\d+(?:\.\d+)?", str(value)) if not isinstance(value, bool) else None
    return float(found.group()) if found else None


def _scaled(value: Any, scale: float) -> float | None:
    number = _number(value)
    return number * scale if number else None


def _whole(value: Any, default: int | None = None) -> Any:
    number = _number(value)
    return default if number is None else int(number)
