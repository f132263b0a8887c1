"""What the drivers of remote stores raise, in perfmodel's messages: one sentence and what to do about it."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import NamedTuple

from perfmodel.errors import InputFileError, PerfModelError, UnavailableError
from perfmodel.storage.place import EXTRAS, NO_FILE, Url

#: Names of exceptions in the drivers' class hierarchies: naming them here saves importing aiohttp, botocore and
#: google.auth, of which one at most is installed for a given store.
_NO_CREDENTIALS = {"NoCredentialsError", "PartialCredentialsError", "DefaultCredentialsError", "TokenRetrievalError"}
_UNREACHABLE = {
    "ClientConnectionError",
    "ConnectionError",
    "ConnectTimeoutError",
    "EndpointConnectionError",
    "HTTPClientError",
    "TimeoutError",
    "TransportError",
    "gaierror",
}
#: an answer that ends before it is whole; aiohttp gives it the status 400, which the server did not send
_CUT_OFF = {"ClientPayloadError", "IncompleteReadError", "IncompleteRead"}
#: what gcsfs says for status 403, as a plain OSError (gcsfs 2026.10.1, retry.validate_response)
_FORBIDDEN = "Forbidden: "
_LOGIN = {
    "s3": "Check AWS_PROFILE or AWS_ACCESS_KEY_ID; for a public bucket set FSSPEC_S3_ANON=true.",
    "gcs": "Run gcloud auth application-default login; for a public bucket set FSSPEC_GS_TOKEN=anon.",
    "http": "Use an address that needs no login, or download the file.",
}
_ENDPOINT = {
    "s3": "Check the network and AWS_ENDPOINT_URL.",
    "gcs": "Check the network and STORAGE_EMULATOR_HOST.",
    "http": "Check the address and the network.",
}


class _Cause(NamedTuple):
    message: str
    remedy: str
    kind: type[PerfModelError] | None = None


@contextlib.contextmanager
def explained(url: Url, kind: type[PerfModelError] = InputFileError) -> Iterator[None]:
    """Turn whatever a driver raises in the block into one error of class ``kind``.

    Raises
    ------
    UnavailableError
        When the driver of the store is not installed.
    """
    try:
        yield
    except PerfModelError:
        raise
    except Exception as error:
        cause = _cause(url, error)
        raise (cause.kind or kind)(cause.message, place=url.text, remedy=cause.remedy) from error


def _cause(url: Url, error: Exception) -> _Cause:
    """Return what is wrong: the first link of the chain of exceptions that says more than "not found"."""
    extra = EXTRAS.get(url.scheme, "")
    if isinstance(error, ImportError):
        return _no_driver(url, error)
    missing = False
    for link in _chain(error):
        names = {kind.__name__ for kind in type(link).__mro__}
        status = _status(link)
        missing = missing or isinstance(link, FileNotFoundError) or status == 404
        if names & _NO_CREDENTIALS or status == 401:
            return _Cause("no credentials are found, or they are refused.", _LOGIN.get(extra, ""))
        if isinstance(link, PermissionError) or status == 403 or str(link).startswith(_FORBIDDEN):
            return _Cause("access is denied.", _LOGIN.get(extra, ""))
        if names & _CUT_OFF:
            return _Cause("the connection ended before the file did.", _ENDPOINT.get(extra, "Check the network."))
        if status and status != 404:
            return _Cause(f"the server answers with status {status}.", "Try again later, or download the file.")
        if names & _UNREACHABLE:
            return _Cause("cannot be reached.", _ENDPOINT.get(extra, "Check the address and the network."))
    if missing:
        return _missing(url, error)
    reason = " ".join(str(error).split()).rstrip(".") or type(error).__name__
    return _Cause(f"the driver of the store reports: {reason[:300]}.", "")


def _missing(url: Url, error: Exception) -> _Cause:
    if "bucket" in str(error).lower():
        return _Cause("no such bucket.", "Check its name.")
    if url.scheme == "memory":
        return _Cause(NO_FILE, "memory:// belongs to one process: write it in this one first.")
    return _Cause(NO_FILE, "Check the address.")


def _no_driver(url: Url, error: ImportError) -> _Cause:
    extra = EXTRAS.get(url.scheme)
    remedy = f"pip install 'perfmodel[{extra}]'" if extra else str(error) or "Install the driver that fsspec names."
    return _Cause(f"the driver for {url.scheme}:// is not installed.", remedy, UnavailableError)


def _chain(error: BaseException) -> Iterator[BaseException]:
    """Yield an exception and what it came from."""
    link: BaseException | None = error
    for _ in range(10):
        if link is None:
            return
        yield link
        link = link.__cause__ or link.__context__


def _status(error: BaseException) -> int | None:
    """Return the status of an HTTP answer in an exception of aiohttp, gcsfs or botocore."""
    response = getattr(error, "response", None)
    answer = response.get("ResponseMetadata", {}).get("HTTPStatusCode") if isinstance(response, dict) else None
    for found in (answer, getattr(error, "status", None), getattr(error, "code", None)):
        if isinstance(found, int) and 400 <= found < 600:
            return found
    return None
