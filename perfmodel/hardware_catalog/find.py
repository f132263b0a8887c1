"""Finding a machine by name, alias, device name or file."""

from __future__ import annotations

import functools
import os
import re
from dataclasses import dataclass
from pathlib import Path

from perfmodel.core.hardware import Hardware
from perfmodel.errors import InputFileError, UsageError, unknown_name
from perfmodel.files import DOCUMENT_SUFFIXES, shipped_folder
from perfmodel.hardware_catalog.read import read_hardware

#: words before the product in what NVML, torch, rocm-smi and people write
_BRANDS = ("nvidia", "amd", "tesla", "instinct", "geforce")
#: a driver keeps up to 4 % of the memory to itself (45,457 of 49,152 MiB on an A40 with ECC: 7.6 %)
_MEMORY_TOLERANCE = 0.1


def search_folders() -> list[Path]:
    """Return the folders that are searched, first match wins.

    Those of the environment variable ``PERFMODEL_HARDWARE`` (separated as in PATH), then the specs of the
    installed package, or of the checkout when it is installed editable.

    Raises
    ------
    InputFileError
        When a folder of ``PERFMODEL_HARDWARE`` does not exist.
    """
    folders = []
    for text in filter(None, os.environ.get("PERFMODEL_HARDWARE", "").split(os.pathsep)):
        if not Path(text).is_dir():
            raise InputFileError("no such folder.", place=f"PERFMODEL_HARDWARE={text}", remedy="Unset or mend it.")
        folders.append(Path(text))
    return [*folders, shipped_folder()]


def spec_files() -> dict[str, Path]:
    """Return catalog name -> file; a file of an earlier folder hides one of the same name."""
    found: dict[str, Path] = {}
    for folder in search_folders():
        for path in sorted(folder.glob("*.toml")):
            found.setdefault(path.stem, path)
    return found


def hardware_names() -> list[str]:
    """Return the names of all machines in the catalog, sorted."""
    return sorted(spec_files())


@functools.lru_cache(maxsize=128)
def _read(path: Path, _modified_ns: int) -> Hardware:
    """Read a file once for each state of it; its ``[latency]`` tables when they are needed."""
    return read_hardware(path, lazy=True)


def _load(path: Path) -> Hardware:
    # A file that is not there, as behind a dangling link, gets its message from the reader.
    return _read(path, path.stat().st_mtime_ns) if path.exists() else read_hardware(path)


def load_all() -> list[Hardware]:
    """Return every machine of the catalog, in the order of their names."""
    files = spec_files()
    return [_load(files[name]) for name in sorted(files)]


#: names that NVML and torch report for products that the catalog lacks, and that would pass for another one
#: (pci.ids, github.com/pciutils/pciids @ c1c12547: device 2339 is the SXM5 of 94 GB)
_OTHER_PRODUCTS = {"nvidia h100": "the H100 SXM5 with 94 GB"}


def hardware(name: str | os.PathLike[str]) -> Hardware:
    """Return a machine by its catalog name, an alias, the name that NVML and torch report, or a file.

    Names are compared without regard to case, spaces, hyphens, underscores and the brand in front ("NVIDIA",
    "Tesla", "AMD Instinct", ...); the whole name has to match, since "H100" is a prefix of "H100 NVL".

    Raises
    ------
    UsageError
        When no machine answers to the name; the message has the nearest.
    InputFileError
        When a file is named that cannot be read or is wrong.

    >>> hardware("a100-sxm4-40gb").sm_count
    108
    """
    text = os.fspath(name)
    if Path(text).suffix.lower() in DOCUMENT_SUFFIXES:
        return read_hardware(text)
    files = spec_files()
    if text in files:
        return _load(files[text])
    other = _OTHER_PRODUCTS.get(text.strip().lower())
    if other:
        raise UsageError(
            f"{text!r} is how {other} calls itself, which the catalog does not have.",
            remedy="Name the machine you mean: h100-sxm5-80gb, h100-pcie-80gb or h100-nvl-94gb.",
        )
    known = _names()
    found = known.get(name_key(text))
    if found is not None:
        return found
    if os.sep in text:
        return read_hardware(text)
    aliases = {alias for machine in known.values() for alias in machine.aliases}
    raise unknown_name("hardware", text, {*files, *aliases}, main=files)


def _names() -> dict[str, Hardware]:
    """Return every name that a machine answers to, in the form of `name_key`.

    The machines of ``PERFMODEL_HARDWARE`` come first, so that a calibrated file of a user answers to the
    device name in place of the shipped one.
    """
    shipped = shipped_folder()
    files = sorted(spec_files().items(), key=lambda item: (item[1].parent == shipped, item[0]))
    known: dict[str, Hardware] = {}
    for _, path in files:
        machine = _load(path)
        for other in (machine.name, *machine.device_names, *machine.aliases):
            known.setdefault(name_key(other), machine)
    return known


def same_machine(name: str, machine: Hardware) -> bool:
    """Return whether a name is one that a machine answers to: its own, an alias, or what NVML and torch report.

    The machine may come from a file of the user's, which the catalog does not know.
    """
    return name_key(name) in {name_key(known) for known in (machine.name, *machine.aliases, *machine.device_names)}


def name_key(name: str) -> str:
    """Return a name for comparison: lower case, no brand in front, no separators.

    >>> name_key("NVIDIA A100-SXM4-80GB") == name_key("a100_sxm4_80gb")
    True
    >>> name_key("NVIDIA H100 NVL") == name_key("NVIDIA H100 PCIe")
    False
    """
    return "".join(_words(name))


def _words(name: str) -> list[str]:
    words = re.findall(r"[^\s_\-/()]+", name.lower())
    while len(words) > 1 and words[0] in _BRANDS:
        words = words[1:]
    return words


@dataclass(frozen=True)
class DeviceMatch:
    """The machine of the catalog that fits a device, and why.

    ``by`` is "name", or "name and memory size" where the name alone fits several; ``memory_differs`` says that
    the device has another memory size than the machine: a partition (MIG, vGPU) or another product.
    """

    hardware: Hardware
    by: str
    memory_differs: bool = False


def match_device(name: str, memory_bytes: float | None = None) -> DeviceMatch | None:
    """Return the machine that a device is, by the name it reports and the size of its memory, or None.

    The whole name decides where a machine lists it. Otherwise the machines whose name has all the words of
    the device's name and whose memory is as large are looked at, and one is taken when it is the only one.
    """
    if name.strip().lower() in _OTHER_PRODUCTS:
        return None
    exact = _names().get(name_key(name))
    # an alias of people ("v100-sxm2") is no device name: it says nothing about the memory
    if exact is not None and name_key(name) in map(name_key, exact.device_names):
        return DeviceMatch(exact, "name", memory_bytes is not None and not _as_large(exact, memory_bytes))
    words = set(_words(name))
    if memory_bytes is None or not words:
        return None
    fitting = {
        machine.name: machine
        for machine in _names().values()
        for listed in machine.device_names
        if words <= set(_words(listed)) and _as_large(machine, memory_bytes)
    }
    if len(fitting) != 1:
        return None
    return DeviceMatch(next(iter(fitting.values())), "name and memory size")


def _as_large(machine: Hardware, memory_bytes: float) -> bool:
    capacity = machine.main_memory.capacity_bytes
    return capacity is not None and abs(memory_bytes / capacity - 1) <= _MEMORY_TOLERANCE
