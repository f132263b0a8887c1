"""Local copies of remote files, for readers that need a file: sqlite, parquet, packed traces that are read twice.

A copy is kept under the address and what the store says about the version (ETag, time, size), so that a command that
runs again does not download again, and never sees an old version.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from perfmodel.errors import InputFileError
from perfmodel.storage import remote
from perfmodel.storage.place import Url, name_of

#: the folder of the copies, instead of perfmodel in the user's cache folder
VARIABLE = "PERFMODEL_CACHE"
#: what stores call the version of an object: s3fs, gcsfs, http, memory, sftp and others
_VERSION = (
    "ETag", "etag", "LastModified", "Last-Modified", "last_modified", "mtime", "updated", "generation", "md5Hash",
    "Content-MD5", "Digest", "created", "VersionId",
)  # fmt: skip
#: how long a copy is taken without asking the store again [s]: one command opens a file several times
_FRESH_S = 5.0
#: copies that were not used for so long are removed [s], and the longest unused ones above so many bytes; assumed
_KEPT_S, _MOST_BYTES = 7 * 86400.0, 20_000_000_000
#: copies of this age are never removed: another process may be reading them [s]
_IN_USE_S = 3600.0

#: address -> its copy, and when the store was asked [s]
_asked: dict[str, tuple[str, float]] = {}


def folder(name: str) -> Path:
    """Return a folder for files of this user, which is made if it is not there.

    Parameters
    ----------
    name : "files" for copies, "unsaved" for what could not be put into its store yet.
    """
    chosen = os.environ.get(VARIABLE)
    home = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    candidates = [chosen] if chosen else [f"{home}/perfmodel", f"{tempfile.gettempdir()}/perfmodel-{os.getuid()}"]
    for candidate in candidates:
        path = Path(candidate) / name
        with contextlib.suppress(OSError):
            path.mkdir(mode=0o700, parents=True, exist_ok=True)
            if os.access(path, os.W_OK) and path.stat().st_uid == os.getuid():
                return path
    raise InputFileError("is no folder that can be written.", place=candidates[0], remedy=f"Set {VARIABLE} to one.")


def file_name(url: Url, version: str = "") -> str:
    """Return a file name for an address: its own, behind a hash of all of it."""
    digest = hashlib.sha256(f"{url.text}\n{version}".encode()).hexdigest()[:20]
    return f"{digest}-{re.sub(r'[^A-Za-z0-9._-]', '_', name_of(url.text))[-100:]}"


def copy_of(url: Url) -> str:
    """Return a local file with the content of a remote one.

    Raises
    ------
    InputFileError
        When it is not there, is a folder, or cannot be fetched.
    """
    path, asked = _asked.get(url.text, ("", 0.0))
    if path and time.monotonic() - asked < _FRESH_S and os.path.exists(path):
        return path
    facts = remote.info(url)
    if facts.get("type") == "directory":
        raise InputFileError("this is a folder; a file is needed.", place=url.text, remedy="Name a file in it.")
    version = _version(facts)
    target = folder("files") / file_name(url, version or f"{os.getpid()} {time.time_ns()}")
    if version and target.exists():
        with contextlib.suppress(OSError):
            os.utime(target)
    else:
        _download(url, target)
        _remove_unused(target.parent)
    _asked[url.text] = str(target), time.monotonic()
    return str(target)


def forget(url: Url) -> None:
    """Ask the store again next time: this process has written the file."""
    _asked.pop(url.text, None)


def _version(facts: Mapping[str, Any]) -> str:
    """Return what tells a version of an object from others; empty where the store says nothing."""
    marks = [f"{key}={facts[key]}" for key in _VERSION if facts.get(key) is not None]
    return " ".join([*marks, str(facts.get("size"))]) if marks else ""


def _download(url: Url, target: Path) -> None:
    handle, part = tempfile.mkstemp(dir=target.parent, suffix=".part")
    os.close(handle)
    try:
        remote.fetch(url, part)
        os.replace(part, target)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(part)
        raise


def _remove_unused(files: Path) -> None:
    """Remove the copies that were not used for a week, then the longest unused ones of those that are too many."""
    now, total = time.time(), 0
    with contextlib.suppress(OSError), os.scandir(files) as entries:
        found = sorted(((entry.stat(), entry.path) for entry in entries), key=lambda one: -one[0].st_mtime)
        for facts, path in found:
            total += facts.st_size
            age_s = now - facts.st_mtime
            if age_s > _KEPT_S or (total > _MOST_BYTES and age_s > _IN_USE_S):
                with contextlib.suppress(OSError):
                    os.unlink(path)
