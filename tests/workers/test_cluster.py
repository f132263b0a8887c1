"""A scheduler that is none, has no workers, other versions or ends early: one message each, and none waits for ever."""

from __future__ import annotations

import contextlib
import logging
import os
import pickle
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import CancelledError, Executor
from pathlib import Path
from typing import Any

import pytest

import perfmodel as pm
from perfmodel.errors import UnavailableError, UsageError
from perfmodel.workers import cluster, executor
from perfmodel.workers.lost import WorkersLostError

ADDRESS = "tcp://127.0.0.1:8786"


class Tasks(Executor):
    """An executor that says whether its tasks were cancelled."""

    cancelled = False

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        self.cancelled = not wait


class Client:
    """A client of a scheduler with a worker whose perfmodel has a version."""

    def __init__(self, version: str = pm.__version__, *, workers: int = 1) -> None:
        self.version, self.workers = version, workers
        self.closed, self.tasks = threading.Event(), Tasks()

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def wait_for_workers(self, count: int, timeout: float) -> None:
        if self.workers < count:
            raise TimeoutError(f"{self.workers} of {count} workers after {timeout} s")

    def run(self, function: Callable[[], str]) -> dict[str, str]:
        assert function() == pm.__version__
        return {"tcp://10.0.0.2:4000": self.version}

    @property
    def status(self) -> str:
        return "closed" if self.closed.is_set() else "running"

    def get_executor(self, *, pure: bool) -> Tasks:
        assert not pure
        return self.tasks

    def scheduler_info(self) -> dict[str, Any]:
        return {"workers": dict.fromkeys(range(self.workers))}

    def close(self) -> None:
        self.closed.set()


@pytest.fixture
def connected(monkeypatch: pytest.MonkeyPatch) -> Callable[[Client], None]:
    pytest.importorskip("distributed")
    return lambda client: monkeypatch.setattr(cluster, "_client", lambda *_: client)


@pytest.mark.parametrize(
    ("client", "message"),
    [
        (
            Client(workers=0),
            f"scheduler {ADDRESS}: the scheduler has no workers. Start one with: dask worker {ADDRESS}",
        ),
        (Client(""), f"the worker tcp://10.0.0.2:4000 has no perfmodel. Install perfmodel {pm.__version__} for it."),
        (Client("9.9"), f"has perfmodel 9.9, this program has {pm.__version__}. Install the same version on all"),
    ],
)
def test_workers_that_cannot_work_are_one_message(connected: Any, client: Client, message: str) -> None:
    connected(client)
    with pytest.raises(UnavailableError) as raised, executor(scheduler=ADDRESS):
        pass
    assert message in str(raised.value)


def test_a_scheduler_that_ends_is_one_message_and_dask_logs_none(connected: Any) -> None:
    from distributed import KilledWorker

    connected(Client())
    names = ("distributed.client", "distributed.batched", "distributed.core", "distributed.comm", "tornado.application")
    logs = [logging.getLogger(name) for name in names]
    levels = [log.level for log in logs]
    logged: list[bool] = []

    def result_of_a_lost_task() -> None:
        logged.extend(log.isEnabledFor(logging.ERROR) for log in logs)
        raise CancelledError

    with pytest.raises(WorkersLostError, match="the scheduler no longer answers"), executor(scheduler=ADDRESS):
        result_of_a_lost_task()
    assert logged == [False] * len(logs)
    assert [log.level for log in logs] == levels
    with pytest.raises(WorkersLostError, match="ended each worker that began it"), executor(scheduler=ADDRESS):
        raise KilledWorker("task", None, 3)
    with pytest.raises(FileNotFoundError), executor(scheduler=ADDRESS):
        raise FileNotFoundError  # of the work


def test_tasks_are_cancelled_before_a_client_closes_on_ctrl_c(connected: Any) -> None:
    client = Client()
    connected(client)
    with executor(scheduler=ADDRESS):
        pass
    assert not client.tasks.cancelled
    with pytest.raises(KeyboardInterrupt), executor(scheduler=ADDRESS):
        raise KeyboardInterrupt
    assert client.tasks.cancelled


def test_work_does_not_wait_for_ever_for_workers_that_are_gone(connected: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster, "_LOOK_S", 0.01)
    monkeypatch.setattr(cluster, "_ALONE_S", 0.05)
    client = Client()
    connected(client)

    def result_of_a_closed_client() -> None:
        client.workers = 0
        assert client.closed.wait(10.0)
        raise CancelledError

    with pytest.raises(WorkersLostError, match="all workers ended, and no other came"), executor(scheduler=ADDRESS):
        result_of_a_closed_client()


@pytest.mark.waiting
def test_a_worker_that_is_replaced_in_time_changes_nothing(connected: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster, "_LOOK_S", 0.01)
    monkeypatch.setattr(cluster, "_ALONE_S", 1.0)
    client = Client()
    connected(client)
    with executor(scheduler=ADDRESS):
        client.workers = 0
        assert not client.closed.wait(0.1)
        client.workers = 1
        assert not client.closed.wait(1.2)
    client.workers = 0
    assert not client.closed.wait(0.1)  # the block is over, and nobody looks any more


@pytest.mark.parametrize("port", ["99999", "0", "-1", "many"])
def test_a_port_that_cannot_exist_is_refused_before_anything_waits_for_it(port: str) -> None:
    with pytest.raises(UsageError, match="has no port from 1 to 65535"), cluster.connected(f"tcp://127.0.0.1:{port}"):
        pass


def test_workers_beside_a_scheduler_have_no_effect() -> None:
    with pytest.raises(UsageError, match="workers: 2 has no effect beside a scheduler"), executor(2, ADDRESS):
        pass


@pytest.mark.parametrize(("imported", "version"), [("", ""), ("__version__ = '9.9'", "9.9"), ("pass", "")])
def test_the_version_is_that_of_the_code_and_asked_without_perfmodel(
    tmp_path: Path, imported: str, version: str
) -> None:
    cloudpickle = pytest.importorskip("cloudpickle")
    package = tmp_path / "perfmodel"
    package.mkdir()
    (package / "__init__.py").write_text(imported or "raise ImportError")
    sent: bytes = cloudpickle.dumps(cluster._version())
    program = f"import pickle; print(pickle.loads({sent!r})())"
    paths = os.pathsep.join([str(tmp_path), *filter(None, [os.environ.get("PYTHONPATH", "")])])
    ran = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": paths},
    )  # fmt: skip
    assert ran.stdout.strip() == version
    assert pickle.loads(sent)() == pm.__version__


@contextlib.contextmanager
def program(says: bytes) -> Iterator[str]:
    """Yield the address of a program that says something to whoever connects, and then listens."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            with contextlib.suppress(OSError):
                while True:
                    connection, _ = server.accept()
                    connection.sendall(says)
                    kept.append(connection)

        kept: list[socket.socket] = []
        threading.Thread(target=serve, daemon=True).start()
        yield f"tcp://127.0.0.1:{server.getsockname()[1]}"
        for connection in kept:
            connection.close()


@pytest.mark.parametrize("says", [b"", b"HTTP/1.1 400 Bad Request\r\n\r\n"])
def test_a_program_that_is_no_scheduler_is_one_message(says: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("distributed")
    monkeypatch.setattr(cluster, "_CONNECT_S", 0.2)
    monkeypatch.setattr(cluster, "_GREET_S", 0.1)
    with (
        program(says) as address,
        pytest.raises(UnavailableError, match="is no Dask scheduler"),
        executor(scheduler=address),
    ):
        pass
