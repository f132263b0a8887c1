"""What all tasks have in common reaches each worker once, and nothing of it is left behind."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from perfmodel.workers import executor, slots, streamed
from perfmodel.workers.common import common, opened

FOLDER = Path("/dev/shm")


class Thing:
    """Something large, whose pickle is written once and read once by each process that needs it."""

    read = 0

    def __init__(self) -> None:
        self.numbers = list(range(100_000))

    def __setstate__(self, state: dict[str, Any]) -> None:
        Thing.read += 1
        self.__dict__.update(state)


def looked_up(item: tuple[Any, int]) -> tuple[int, int, int, int]:
    """Return a number of the thing, how often this process has read it, what a task weighs, and the process."""
    shared, place = item
    return opened(shared).numbers[place], Thing.read, len(pickle.dumps(item)), os.getpid()


@pytest.mark.slow
def test_each_process_reads_it_once_and_tasks_are_small() -> None:
    with executor(2) as pool:
        with common(pool, Thing()) as shared:
            found = list(streamed(looked_up, ((shared, place) for place in range(40)), pool, ahead=4))
            assert [number for number, *_ in found] == list(range(40))
            assert {read for _, read, *_ in found} == {1}
            assert os.getpid() not in {process for *_, process in found}
            if FOLDER.exists():
                assert max(size for _, _, size, _ in found) < 200
        if isinstance(shared, slots.Slot):
            assert not (FOLDER / shared.block).exists()


def test_without_shared_memory_it_goes_with_every_task(monkeypatch: pytest.MonkeyPatch) -> None:
    with common(None, [1, 2]) as shared:
        assert opened(shared) == [1, 2]
    with executor(2) as pool, monkeypatch.context() as patch:
        patch.setattr(slots, "_LEFT_FREE", 1e30)
        if FOLDER.exists():
            with common(pool, [1, 2]) as shared:
                assert opened(shared) == [1, 2]
                assert isinstance(shared, bytes)


CLUSTER = """
import distributed
from perfmodel.workers import executor, streamed
from perfmodel.workers.common import common
from test_common import Thing, looked_up
if __name__ == "__main__":
    with distributed.LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster:
        with executor(scheduler=cluster.scheduler_address) as pool, common(pool, Thing()) as shared:
            assert not isinstance(shared, bytes)
            found = list(streamed(looked_up, ((shared, place) for place in range(40)), pool, ahead=8))
            print([number for number, *_ in found] == list(range(40)), {read for _, read, *_ in found})
"""


@pytest.mark.waiting
@pytest.mark.slow
def test_the_workers_of_a_cluster_have_it_from_each_other(tmp_path: Path) -> None:
    pytest.importorskip("distributed")
    (tmp_path / "cluster.py").write_text(CLUSTER)
    paths = os.pathsep.join([str(Path(__file__).parent), *filter(None, [os.environ.get("PYTHONPATH", "")])])
    ran = subprocess.run(
        [sys.executable, str(tmp_path / "cluster.py")], capture_output=True, text=True, check=False, timeout=100,
        env={**os.environ, "PYTHONPATH": paths}, cwd=tmp_path,
    )  # fmt: skip
    assert ran.stdout.strip() == "True {1}", ran.stderr
