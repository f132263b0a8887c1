"""The text of a place: a path of this machine, or the address of an object in a remote store."""

from __future__ import annotations

import os
import re
from pathlib import PurePosixPath
from typing import NamedTuple
from urllib.parse import unquote

#: stores that perfmodel names in its messages, with the extra that installs the driver; fsspec knows more of them
EXTRAS = {"s3": "s3", "s3a": "s3", "gs": "gcs", "gcs": "gcs", "http": "http", "https": "http", "memory": ""}
#: the message about a file that is not there
NO_FILE = "no such file."
#: stores that are read and never written
READ_ONLY = ("http", "https")
#: pathlib leaves one slash of two, so that Path("s3://bucket/key") arrives as "s3:/bucket/key"
_SHORTENED = re.compile(rf"^({'|'.join(EXTRAS)}):/(?!/)")
#: two letters at least: a drive of Windows has one
_URL = re.compile(r"^([A-Za-z][A-Za-z0-9+.-]+)://")
_FILE = re.compile(r"^file://(?:localhost)?(?=/)", re.IGNORECASE)

AnyPath = str | os.PathLike[str]


class Url(NamedTuple):
    """An address in a remote store: ``scheme`` in small letters, ``text`` the whole address."""

    scheme: str
    text: str


def place_of(path: AnyPath) -> str:
    """Return the text of a place: ``file://`` is taken off, and what pathlib did to an address is undone.

    >>> place_of("file:///data/trace.json"), place_of("s3:/bucket/trace.json"), place_of("trace.json")
    ('/data/trace.json', 's3://bucket/trace.json', 'trace.json')
    """
    text = os.fspath(path)
    if ":" not in text:  # as most paths
        return text
    if _FILE.match(text):
        return unquote(_FILE.sub("", text))
    return _SHORTENED.sub(r"\1://", text)


def url_of(path: AnyPath) -> Url | None:
    """Return the address of a remote place, None for a path of this machine.

    >>> url_of("S3://bucket/key").scheme, url_of("trace.json")
    ('s3', None)
    """
    text = place_of(path)
    match = _URL.match(text)
    return Url(match[1].lower(), text) if match else None


def is_remote(path: AnyPath) -> bool:
    """Whether a path is an address in a remote store."""
    return url_of(path) is not None


def name_of(path: AnyPath) -> str:
    """Return the last part of a path, without the query of a web address.

    >>> name_of("https://host/a/trace.json.gz?token=1/2"), name_of("runs/trace.json")
    ('trace.json.gz', 'trace.json')
    """
    url = url_of(path)
    text = place_of(path)
    if url and url.scheme in READ_ONLY:
        text = unquote(text.partition("#")[0].partition("?")[0])
    name = text.rpartition("/")[2]
    return name if name not in ("", ".") else PurePosixPath(text).name


def suffix_of(path: AnyPath) -> str:
    """Return the suffix of a file's name in small letters: ".json", and ".gz" for a packed file."""
    name = name_of(path)
    dot = name.rfind(".")
    return name[dot:].lower() if 0 < dot < len(name) - 1 else ""


def stem_of(path: AnyPath) -> str:
    """Return the name of a file without its suffix, and without ".gz" behind it."""
    return PurePosixPath(name_of(path).removesuffix(".gz")).stem
