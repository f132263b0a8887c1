"""Finding a machine by name, alias, device name or file."""

from __future__ import annotations

import functools
import os
import re
from pathlib import Path

from perfmodel.core.hardware import Hardware
from perfmodel.errors import InputFileError, unknown_name
from perfmodel.files import DOCUMENT_SUFFIXES
from perfmodel.hardware_catalog.read import read_hardware

_PACKAGED = Path(__file__).resolve().parent.parent / "_hardware_specs"
_CHECKOUT = Path(__file__).resolve().parent.parent.parent / "hardware_specs"


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
    return [*folders, _PACKAGED if _PACKAGED.is_dir() else _CHECKOUT]


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
    """Read a file once for each state of it."""
    return read_hardware(path)


def _load(path: Path) -> Hardware:
    return _read(path, path.stat().st_mtime_ns)


def load_all() -> list[Hardware]:
    """Return every machine of the catalog, in the order of their names."""
    files = spec_files()
    return [_load(files[name]) for name in sorted(files)]


def hardware(name: str | os.PathLike[str]) -> Hardware:
    """Return a machine by its catalog name, an alias, the name that NVML and torch report, or a file.

    Names are compared without regard to case, spaces, hyphens and underscores, and a leading "NVIDIA "
    is ignored; the whole name has to match, since "H100" is a prefix of "H100 NVL".

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
    if Path(text).suffix.lower() in DOCUMENT_SUFFIXES or os.sep in text:
        return read_hardware(text)
    files = spec_files()
    if text in files:
        return _load(files[text])
    known = {}
    for machine in load_all():
        for other in (*machine.device_names, *machine.aliases, machine.name):
            known.setdefault(_key(other), machine)
    found = known.get(_key(text))
    if found is None:
        raise unknown_name("hardware", text, files)
    return found


def _key(name: str) -> str:
    """Return a name for comparison: lower case, no separators, no vendor in front."""
    return re.sub(r"[\s_\-]+", "", name.lower().strip().removeprefix("nvidia"))
