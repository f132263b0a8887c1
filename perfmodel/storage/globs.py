"""Patterns of files, local and remote: ``runs/rank*.json.gz``, ``s3://bucket/run/**/*.json``."""

from __future__ import annotations

import contextlib
import glob
import os
import re
from collections.abc import Sequence

from perfmodel.errors import InputFileError
from perfmodel.storage import remote
from perfmodel.storage.place import READ_ONLY, AnyPath, Url, place_of, url_of

_MAGIC = re.compile(r"[*?[]")
#: in a web address a question mark begins the query
_MAGIC_WEB = re.compile(r"[*[]")


def expand(paths: Sequence[AnyPath]) -> list[str]:
    """Return the files of a list of paths and patterns: each pattern becomes what it matches, sorted.

    A path without ``*``, ``?`` and ``[`` stays as it is, as does one of a file that is there.

    Raises
    ------
    InputFileError
        When nothing matches a pattern.
    """
    return [name for path in paths for name in _matches(place_of(path))]


def one(path: AnyPath) -> str:
    """Return the file that a path names, or that a pattern matches.

    Raises
    ------
    InputFileError
        When no file matches the pattern, or more than one.
    """
    place = place_of(path)
    found = _matches(place)
    if len(found) > 1:
        raise InputFileError(
            f"{len(found)} files match the pattern; one is needed.", place=place, remedy=f"Name one, as {found[0]}."
        )
    return found[0]


def _matches(place: str) -> list[str]:
    url = url_of(place)
    if not is_pattern(place):
        return [place]
    found = remote.matches(url) if url else _here(place)
    if not found and url and remote.is_there(url):
        return [place]
    if not found:
        raise InputFileError("no file matches the pattern.", place=place, remedy=_remedy(url))
    return found


def _here(place: str) -> list[str]:
    """Return the files of this machine that match a pattern, sorted; none for a name that no file can have."""
    with contextlib.suppress(OSError, ValueError):
        return sorted(glob.glob(place, recursive=True))
    return []


def is_pattern(path: AnyPath) -> bool:
    """Whether a path is a pattern: it has ``*``, ``?`` or ``[``, and no local file is called so."""
    place = place_of(path)
    url = url_of(place)
    if url is None:
        return bool(_MAGIC.search(place)) and not os.path.exists(place)
    if url.scheme in READ_ONLY:
        return bool(_MAGIC_WEB.search(place.partition("?")[0].partition("//")[2].partition("/")[2]))
    return bool(_MAGIC.search(place))


def _remedy(url: Url | None) -> str:
    if url and url.scheme in READ_ONLY:
        return "The server has to list its files at the address of the folder; else name each file."
    return "Check the folder and the pattern."
