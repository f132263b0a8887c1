"""Remote stores by fsspec: what is there, fetching, putting, patterns. fsspec and drivers are imported on first use."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping
from typing import Any

from perfmodel.errors import InputFileError, PerfModelError, UsageError, not_installed, unknown_name
from perfmodel.storage.failure import explained
from perfmodel.storage.place import EXTRAS, READ_ONLY, Url

#: how long a store may take to answer, and may be silent in the middle of a file [s]; assumed
_CONNECT_S, _SILENT_S = 10.0, 60.0
#: Stores in which an object appears when all of it has arrived. In others a file is written beside it, then renamed.
_WHOLE_OBJECTS = ("s3", "s3a", "gs", "gcs", "az", "abfs", "abfss", "adl", "memory")


def _opened(url: Url) -> tuple[Any, str]:
    """Return the file system of an address, and the path in it.

    Raises
    ------
    UsageError
        When no store has this scheme.
    UnavailableError
        When fsspec or the driver of the store is not installed.
    """
    extra = EXTRAS.get(url.scheme) or "s3"
    try:
        from fsspec import available_protocols
        from fsspec.core import url_to_fs
    except ImportError:
        raise not_installed("addresses of remote stores need fsspec", extra, place=url.text) from None
    if url.scheme not in available_protocols():
        raise unknown_name("kind of store", url.scheme, sorted(EXTRAS), place=url.text)
    with explained(url):
        text = url.scheme + url.text[len(url.scheme) :]
        system, path = url_to_fs(text, **_options(url.scheme))
        return system, path


def _options(scheme: str) -> Mapping[str, Any]:
    """Return the options of a driver beside those of fsspec's configuration, which win.

    Listings are not kept, since they would hide what others write. The drivers' own limits of time are none at all, or
    five minutes for a whole file.
    """
    from fsspec.config import conf

    given = conf.get(scheme, {})
    if EXTRAS.get(scheme) == "http":
        from aiohttp import ClientTimeout

        waits = ClientTimeout(total=None, sock_connect=_CONNECT_S, sock_read=_SILENT_S)
        client = {"timeout": waits, "trust_env": True, **given.get("client_kwargs", {})}
        return {"use_listings_cache": False, "client_kwargs": client}
    if EXTRAS.get(scheme) == "s3":
        waits_s = {"connect_timeout": _CONNECT_S, "read_timeout": _SILENT_S, **given.get("config_kwargs", {})}
        return {"use_listings_cache": False, "config_kwargs": waits_s}
    return {"use_listings_cache": False} if EXTRAS.get(scheme) == "gcs" else {}


def info(url: Url) -> Mapping[str, Any]:
    """Return what the store says about an object: size, type, and marks of its version.

    Raises
    ------
    InputFileError
        When it is not there or cannot be reached.
    """
    with explained(url, InputFileError):
        system, path = _opened(url)
        found: Mapping[str, Any] = system.info(path)
        return found


def is_there(url: Url, kind: type[PerfModelError] = InputFileError) -> bool:
    """Whether the store has a file of that name.

    Raises
    ------
    InputFileError
        Or an error of class ``kind``: when the store cannot be asked.
    """
    with explained(url, kind):
        system, path = _opened(url)
        with contextlib.suppress(FileNotFoundError):
            return bool(system.info(path)["type"] == "file")
        return False


def fetch(url: Url, target: str) -> None:
    """Write the content of an object into a new local file.

    Raises
    ------
    InputFileError
        When the object is not there, cannot be read, or the file cannot be written.
    """
    with explained(url):
        system, path = _opened(url)
        system.get_file(path, target)


def put(url: Url, data: bytes) -> None:
    """Write an object in one step: readers see the old content or the new.

    Raises
    ------
    UsageError
        When the store is read-only, cannot be reached, or refuses.
    """
    check_scheme(url)
    with explained(url, UsageError):
        system, path = _opened(url)
        if url.scheme in _WHOLE_OBJECTS:
            system.pipe_file(path, data)
            return
        beside = f"{path}.{os.getpid()}.part"
        try:
            system.pipe_file(beside, data)
            system.mv(beside, path)
        except BaseException:
            with contextlib.suppress(Exception):
                system.rm_file(beside)
            raise


def check_scheme(url: Url) -> None:
    """Refuse to write to a store that is only read.

    Raises
    ------
    UsageError
        When files of the store cannot be written.
    """
    if url.scheme in READ_ONLY:
        raise UsageError(
            f"{url.scheme}:// can be read, not written.", place=url.text, remedy="Write to a file, s3:// or gs://."
        )


def check_bucket(url: Url) -> None:
    """Refuse to write where an object store has no bucket, or the address has no name behind it.

    Raises
    ------
    UsageError
        When the bucket is not there or cannot be listed, or no file in it is named.
    """
    if EXTRAS.get(url.scheme) not in ("s3", "gcs"):
        return
    bucket, _, key = url.text.partition("://")[2].partition("/")
    if not bucket or not key.strip("/"):
        raise UsageError("names no file in a bucket.", place=url.text, remedy=f"Use {url.scheme}://BUCKET/FILE.")
    with explained(url, UsageError):
        system, _ = _opened(url)
        if not system.exists(bucket):
            raise UsageError("no such bucket.", place=url.text, remedy="Check its name.")


def matches(url: Url) -> list[str]:
    """Return the addresses that match a pattern, sorted.

    Raises
    ------
    InputFileError
        When the store cannot be asked.
    """
    with explained(url):
        system, path = _opened(url)
        found = system.glob(path)
        return sorted(name if "://" in name else f"{url.scheme}://{name.lstrip('/')}" for name in found)
