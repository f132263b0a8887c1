"""Stores on this machine: fsspec's memory, an HTTP server on the loopback, and moto's S3."""

from __future__ import annotations

import io
import threading
from collections.abc import Iterator
from functools import partial
from http import HTTPStatus
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from perfmodel.storage import cache


class _Handler(SimpleHTTPRequestHandler):
    """Serves a folder; the first part of a path may name the status of the answer, or be "cut": half of a file."""

    def log_message(self, *_: object) -> None:
        """Say nothing."""

    def send_head(self):  # type: ignore[no-untyped-def]
        first = self.path.split("/")[1]
        if first.isdigit():
            return self.send_error(HTTPStatus(int(first)))
        if first == "cut":
            self.send_response(HTTPStatus.OK)
            self.send_header("Content-Length", "100")
            self.end_headers()
            return io.BytesIO(b"x" * 50)
        return super().send_head()


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of copies, for one test."""
    folder = tmp_path / "cache"
    monkeypatch.setenv(cache.VARIABLE, str(folder))
    monkeypatch.setattr(cache, "_asked", {})
    return folder


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """The folder that `web` serves."""
    folder = tmp_path / "site"
    folder.mkdir()
    return folder


@pytest.fixture
def web(site: Path) -> Iterator[str]:
    """The address of an HTTP server on the loopback."""
    pytest.importorskip("aiohttp")
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(_Handler, directory=str(site)))
    server.daemon_threads = False  # closing waits for those that still answer, whose sockets would be left open
    thread = threading.Thread(target=partial(server.serve_forever, poll_interval=0.01), daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.fixture
def memory() -> Iterator[str]:
    """The address of an empty folder of fsspec's memory."""
    fsspec = pytest.importorskip("fsspec")
    store = fsspec.filesystem("memory")
    store.store.clear()
    yield "memory://runs"
    store.store.clear()
