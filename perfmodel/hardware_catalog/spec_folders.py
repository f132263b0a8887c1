"""The folders of specification files: which there are, what they hold, and when it changed. Nothing is read here."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from perfmodel.errors import InputFileError
from perfmodel.files import shipped_folder
from perfmodel.plugins import plugin_folders


def search_folders() -> list[Path]:
    """Return the folders of specification files; the first match wins.

    First the folders in the environment variable ``PERFMODEL_HARDWARE`` (separated as in PATH), then the specs of
    perfmodel (of the installed package, or of the checkout for an editable install), then those of plugins.

    Raises
    ------
    InputFileError
        When a folder in ``PERFMODEL_HARDWARE`` does not exist.
    """
    return [*_user_folders(), *_other_folders()]


def _other_folders() -> tuple[Path, ...]:
    return (shipped_folder(), *plugin_folders("hardware"))


def _user_folders() -> list[Path]:
    folders = []
    named = os.environ.get("PERFMODEL_HARDWARE", "")
    if "://" in named:
        raise InputFileError(
            "only folders of this machine are searched.",
            place=f"PERFMODEL_HARDWARE={named}",
            remedy="Name the file of one machine: --on s3://BUCKET/FILE.toml.",
        )
    for text in filter(None, named.split(os.pathsep)):
        if Path(text).is_file():
            raise InputFileError(
                "this is a file; a folder of spec files is needed.",
                place=f"PERFMODEL_HARDWARE={text}",
                remedy=f"Name its folder, or give the file itself: --on {text}.",
            )
        if not Path(text).is_dir():
            raise InputFileError("no such folder.", place=f"PERFMODEL_HARDWARE={text}", remedy="Unset or correct it.")
        folders.append(Path(text))
    return folders


#: the files of the catalog by name, each with the time of its last change [ns]: what was read of them holds as long
Files = tuple[tuple[str, int], ...]


def spec_files() -> dict[str, Path]:
    """Return catalog name -> file, in the order of `search_folders`; the first file of a name wins."""
    paths = (Path(path) for path, _ in files_now())
    return {path.stem: path for path in paths}


def file_of(name: str) -> Path | None:
    """Return the file of a catalog name, as `spec_files` has it, without a look at the others."""
    if not name or Path(name).name != name:
        return None
    paths = (folder / f"{name}.toml" for folder in search_folders())
    return next((path for path in paths if os.path.lexists(path)), None)


def files_now() -> Files:
    """Return the files of the catalog as they are now, each name once."""
    files: dict[str, tuple[str, int]] = {}
    for folder in search_folders():
        for name, path, changed_ns in _listed(folder):
            files.setdefault(name, (path, changed_ns))
    return tuple(files.values())


def _listed(folder: Path) -> list[tuple[str, str, int]]:
    """Return the specification files of a folder, sorted by name: name, path, and when it was changed [ns]."""
    with contextlib.suppress(FileNotFoundError), os.scandir(folder) as entries:
        return sorted((entry.name, entry.path, _changed_ns(entry)) for entry in entries if entry.name.endswith(".toml"))
    return []


def _changed_ns(entry: os.DirEntry[str]) -> int:
    with contextlib.suppress(OSError):  # a link that leads nowhere, of which the reader tells
        return entry.stat().st_mtime_ns
    return 0


def hardware_names() -> list[str]:
    """Return the names of all machines in the catalog, sorted."""
    return sorted(spec_files())


#: folders of spec files, each with the time of its last change [ns], or with its files where a user may edit them
Folders = tuple[tuple[str, int | Files], ...]


def folders_now() -> Folders:
    """Return what a search by name depends on. A look at every file of the catalog would take 400 us a call."""
    own = ((str(folder), tuple(file[1:] for file in _listed(folder))) for folder in _user_folders())
    others = (str(folder) for folder in _other_folders())
    return (*own, *((folder, os.stat(folder).st_mtime_ns) for folder in others))
