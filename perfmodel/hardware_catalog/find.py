"""Finding a machine by name, alias, device name or file.

The catalog is the specification files of some folders; a new file is a new machine. The entry-point group
``perfmodel.hardware`` adds the folders of other distributions' packages.
"""

from __future__ import annotations

import functools
import os
import tomllib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType

from perfmodel import storage
from perfmodel.core.hardware import Hardware
from perfmodel.core.report import Reportable
from perfmodel.errors import InputFileError, UsageError, expect, unknown_name
from perfmodel.files import DOCUMENT_SUFFIXES
from perfmodel.hardware_catalog.names import (
    is_other_chip,
    memory_of,
    misspelt,
    name_key,
    of_instance,
    product_of,
    same_edition,
    share_of,
    whole_of,
    words_of,
)
from perfmodel.hardware_catalog.origin import is_shipped
from perfmodel.hardware_catalog.read import read_hardware
from perfmodel.hardware_catalog.spec_folders import Files, Folders, file_of, files_now, folders_now, spec_files
from perfmodel.plugins import plugin_folders, warn_of_plugin, warn_once

#: the share of the memory that a driver may reserve, with a margin: up to 4 %, and 7.6 % on an A40 with ECC (45,457 of
#: 49,152 MiB)
_MEMORY_TOLERANCE = 0.1
#: names, aliases and the like of a specification take less than this
_HEAD_BYTES = 4096
#: what to do about a machine that the catalog lacks
_ANOTHER = (
    "For another machine, change the spec file of a similar one: perfmodel hardware show NAME --format toml "
    "-o my_gpu.toml, then --on my_gpu.toml."
)


@functools.lru_cache(maxsize=512)
def _read(path: str, _modified_ns: int) -> Hardware:
    """Read a file once for each of its versions; its ``[latency]`` tables when they are needed."""
    return read_hardware(path, lazy=True)


def _load(path: str) -> Hardware:
    try:
        changed_ns = os.stat(path).st_mtime_ns
    except OSError:
        return read_hardware(path)  # which has the message for a file that is not there, as behind a dangling link
    return _read(path, changed_ns)


@functools.lru_cache(maxsize=4)
def _load_all(files: Files) -> tuple[Hardware, ...]:
    """Return the machine of each file. A wrong file of a user or a plugin is skipped with a warning."""
    machines = []
    for path, _ in files:
        try:
            machines.append(_load(path))
        except InputFileError as error:
            if is_shipped(path):
                raise
            _warn_of_file(Path(path), error)
    return tuple(machines)


def _warn_of_file(path: Path, error: InputFileError) -> None:
    if path.parent in plugin_folders("hardware"):
        warn_of_plugin(path.stem, str(path), str(error))
    else:
        warn_once(f"left out of the catalog: {error}")


@dataclass(frozen=True)
class Catalog(Reportable):
    """All machines of the catalog."""

    machines: tuple[Hardware, ...]


def load_catalog(words: Sequence[str] = ()) -> Catalog:
    """Return the machines that hold some words as a result that has a report; all of them without words.

    Parameters
    ----------
    words : parts of a machine's name, title, vendor, architecture, or of another name of it, in any case.

    Raises
    ------
    UsageError
        When no machine holds all of them.
    """
    found = [machine for machine in load_all() if all(word.lower() in _described(machine) for word in words)]
    if not found:
        raise UsageError(
            f"no machine of the catalog holds {' and '.join(map(repr, words))}.",
            remedy=f"perfmodel hardware list shows all. {_ANOTHER}",
        )
    return Catalog(tuple(found))


def _described(machine: Hardware) -> str:
    names = (machine.name, *machine.aliases, *machine.device_names)
    return " ".join((*names, machine.title, machine.vendor, machine.architecture)).lower()


def load_all() -> list[Hardware]:
    """Return every machine of the catalog, in the order of their names."""
    return sorted(_load_all(files_now()), key=lambda machine: machine.name)


#: names that NVML and torch report for a product that the catalog lacks, and that would be mistaken for another one
#: (pci.ids, github.com/pciutils/pciids @ c1c12547: device 2339 is the SXM5 with 94 GB)
OTHER_PRODUCTS = {"nvidia h100": "the H100 SXM5 with 94 GB"}


def hardware(name: str | os.PathLike[str]) -> Hardware:
    """Return a machine by its catalog name, an alias, the name that NVML and torch report, or a file.

    Case, spaces, hyphens, underscores, a leading brand ("NVIDIA", "Tesla", "AMD Instinct", ...), the system that holds
    the GPU ("DGX", "HGX") and the order of the words do not matter. The whole name has to match, since "H100" is a
    prefix of "H100 NVL". An instance of a cloud is one GPU of it.

    Raises
    ------
    UsageError
        When no machine has this name; the message suggests the nearest.
    InputFileError
        When a file cannot be read or is wrong.

    >>> hardware("a100-sxm4-40gb").sm_count
    108
    >>> hardware("p5.48xlarge").name
    'h100-sxm5-80gb'
    """
    remedy = 'Give a name of the catalog, "h100", or the path of a spec file.'
    expect(name, str | os.PathLike, "name of a machine", place="hardware", remedy=remedy)
    text = os.fspath(name)
    if _is_document(text):
        return read_hardware(text)
    if path := _found(text, folders_now()):
        return _load(path)
    advice = suggestion(text)
    if os.sep in text and (not advice or os.path.exists(text)):
        return read_hardware(text)
    raise _unknown(text, advice)


@functools.lru_cache(maxsize=512)
def _is_document(text: str) -> bool:
    return storage.suffix_of(text) in DOCUMENT_SUFFIXES


@functools.lru_cache(maxsize=512)
def _found(text: str, folders: Folders) -> str:
    """Return the file of the machine that a name stands for while the folders are as they are; "" if unknown.

    Raises
    ------
    UsageError
        When it is the name that another product reports.
    """
    if own := file_of(text):
        return str(own)
    other = OTHER_PRODUCTS.get(text.strip().lower())
    if other:
        raise UsageError(
            f"{text!r} is the name that {other} reports, which the catalog does not have.",
            remedy=f"{suggestion(text)}; name the one that it is.",
        )
    files = files_now()
    if claimed := _claimed(files, name_key(text)):
        return claimed
    machine = _by_key(files).get(name_key(text)) or _by_words(files).get(frozenset(words_of(text)))
    if machine is not None:
        return machine.path
    instance = of_instance(text)
    return _found(instance, folders) if instance else ""


def _unknown(text: str, advice: str) -> Exception:
    """Return the error for a name that no machine has: misspelt, of a product, a part of a name, or unlike any."""
    names = [*spec_files(), *(alias for machine in machines_by_key().values() for alias in machine.aliases)]
    near = misspelt(text, names)
    if not near and advice:
        what_to_do = "; name the one that it is." if similar_machines(text) else f". {_ANOTHER}"
        return UsageError(f"unknown hardware {text!r}.", remedy=f"{advice}{what_to_do}")
    word = text.strip().lower()
    held = sum(word in _described(machine) for machine in load_all()) if word else 0
    if held and not near:
        shown = f"`perfmodel hardware list {word}` shows {held} that hold this word; name one of them."
        return UsageError(f"unknown hardware {text!r}.", remedy=shown)
    main = {machine.name for machine in load_all()}
    error = unknown_name("hardware", text, near, main=main, listing="perfmodel hardware list")
    error.remedy += f" {_ANOTHER}"
    return error


def machines_apart(names: Iterable[str]) -> list[Hardware]:
    """Return machines, each once, under names that differ.

    A file may have the name of another machine, as a calibration of one has. It has its file's name then, or its path
    where two files have one name.

    Parameters
    ----------
    names : as for `hardware`.
    """
    found: dict[str, Hardware] = {}
    for name in dict.fromkeys(map(os.fspath, names)):
        machine = hardware(name)
        if not any(machine.name == other.name and machine == other for other in found.values()):
            found[name] = machine
    count = Counter(machine.name for machine in found.values())
    taken = {machine.name for machine in found.values() if count[machine.name] == 1}
    machines = []
    for name, machine in found.items():
        if count[machine.name] > 1 and _is_document(name):
            stem = storage.stem_of(name)
            title = f"{machine.title or machine.name} ({stem})"
            machine = replace(machine, name=name if stem in taken else stem, title=title)
        taken.add(machine.name)
        machines.append(machine)
    return machines


def similar_machines(text: str) -> list[str]:
    """Return the machines that a device name that the catalog lacks may stand for; empty if unknown.

    They are those that list the name among their boards, else those whose product's name is the same, as those of A100
    for "A100-PG506-230", or the same but for a letter, as MI300A and MI300X for "MI300". A laptop's board has another
    chip than the product of the same number, a name that states a memory is none of a machine with another one, and a
    partition (MIG) or virtual GPU is no whole GPU.
    """
    if whole_of(text) or share_of(text):
        return []
    return [name for name in _of_product(text) if not is_other_chip(text, name) and _may_have_memory(text, name)]


def _may_have_memory(text: str, name: str) -> bool:
    """Return whether a machine, or the module of two of which it is one, has the memory that a name states, if any."""
    stated_gb, machine = memory_of(text), machines_by_key()[name_key(name)]
    shares = (1, 2) if machine.tdp_alone_w else (1,)  # one GCD of an MI250X, which is sold with 128 GB
    return stated_gb is None or any(has_memory(machine, stated_gb / share * 2**30) for share in shares)


def _of_product(text: str) -> list[str]:
    key, product = name_key(text), product_of(text)
    machines = {machine.name: machine for machine in load_all()}
    found = [name for name, machine in machines.items() if key in map(name_key, machine.boards)]
    if not found:
        alike = [name for name in machines if product_of(name) == product]
        found = [name for name in alike if same_edition(text, name)] or alike
    return found or [name for name in machines if _is_edition("".join(product_of(name)), "".join(product))]


def _is_edition(name: str, product: str) -> bool:
    """Return whether a product's name is another with a letter behind its number, as MI300X is of MI300."""
    return product[-1:].isdigit() and name[:-1] == product and name[-1:].isalpha()


def suggestion(text: str) -> str:
    """Return the `similar_machines` of a device name in words: "It may be a100-sxm4-40gb"; "" without any."""
    if found := similar_machines(text):
        return f"It may be {'one of ' if len(found) > 1 else ''}{', '.join(found)}"
    if whole := machines_by_key().get(name_key(whole_of(text))):
        return f"It is a partition (MIG) of {whole.name}, with a part of its SMs, L2, memory and bandwidth"
    if share := share_of(text):
        shared = f"{share.slices} of its slices (MIG)" if share.slices else "turns on its SMs with other virtual GPUs"
        return f"It is a virtual GPU (vGPU) of the board {share.board}, with {share.memory_gb} GB and {shared}"
    others = _of_product(text)
    what = "chip" if all(is_other_chip(text, name) for name in others) else "memory"
    known = ", ".join(others)
    return f"The catalog lacks this board, whose {what} is another one than that of {known}" if others else ""


def machines_by_key() -> Mapping[str, Hardware]:
    """Return every name of every machine, in the form of `name_key`, and the machine that it stands for."""
    return _by_key(files_now())


def _claimed(files: Files, key: str) -> str:
    """Return the first file of which a name, in the form of `name_key`, is `key`; "" for none.

    Only the keys above each file's first table are read, up to the file that has the name, which takes less than a
    thirtieth of the time of reading all files. Nothing is found of files behind one whose keys cannot be read, so that
    the first file of a name is found here, or none.
    """
    for path, changed_ns in files:
        names = _names_in(path, changed_ns)
        if names is None:
            break
        if key in names:
            return path
    return ""


@functools.lru_cache(maxsize=512)
def _names_in(path: str, _modified_ns: int) -> frozenset[str] | None:
    """Return the names of a file's machine in the form of `name_key`, None where its first keys cannot be read."""
    if not os.path.isfile(path):  # a pipe, which nobody may write into
        return None
    try:
        with open(path, "rb") as stream:
            head = stream.read(_HEAD_BYTES).partition(b"\n[")[0]
        keys = tomllib.loads(head.decode("utf-8-sig"))
        return frozenset(map(name_key, [keys["name"], *keys.get("device_names", ()), *keys.get("aliases", ())]))
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None


@functools.lru_cache(maxsize=4)
def _by_key(files: Files) -> Mapping[str, Hardware]:
    """Return every name of every machine, in the form of `name_key`, and the machine that it stands for.

    The machines of ``PERFMODEL_HARDWARE`` come first, so that a calibrated file of a user takes the device name in
    place of the shipped one; those of plugins come last.
    """
    machines: dict[str, Hardware] = {}
    for machine in _load_all(files):
        for name in (machine.name, *machine.device_names, *machine.aliases):
            machines.setdefault(name_key(name), machine)
    return MappingProxyType(machines)


@functools.lru_cache(maxsize=4)
def _by_words(files: Files) -> Mapping[frozenset[str], Hardware]:
    """Return the words of every name of every machine, as those of `_by_key`: "A100 40GB PCIe" has those of another."""
    machines: dict[frozenset[str], Hardware] = {}
    for machine in _load_all(files):
        for name in (machine.name, *machine.device_names, *machine.aliases):
            machines.setdefault(frozenset(words_of(name)), machine)
    return MappingProxyType(machines)


def same_machine(name: str, machine: Hardware) -> bool:
    """Return whether a name stands for a machine: its own, an alias, or the name that NVML and torch report.

    The machine may come from a file of the user's that is not in the catalog.
    """
    names = (machine.name, *machine.aliases, *machine.device_names)
    return name_key(name) in {name_key(other) for other in names}


def has_memory(machine: Hardware, memory_bytes: float) -> bool:
    """Return whether a device of a machine has some memory, as drivers report it [B]."""
    capacity = machine.main_memory.capacity_bytes
    return capacity is not None and abs(memory_bytes / capacity - 1) <= _MEMORY_TOLERANCE
