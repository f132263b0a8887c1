"""The roll of the ranks after a failed exchange: who is missing is named, whoever holds the store."""

from __future__ import annotations

import os
import threading

import pytest

from perfmodel.kernels.distributed import roll
from perfmodel.kernels.distributed.roll import Roll, SilentRanksError
from tests.kernels.roll_store import Store


class Gone(Store):
    def check(self, keys: list[str]) -> bool:
        raise RuntimeError("Broken pipe")


class Stopped(Store):
    def check(self, keys: list[str]) -> bool:
        threading.Event().wait()
        return False


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(roll, "LATE_S", 0.3)
    monkeypatch.setattr(roll, "_LOOK_S", 0.01)


def rolls(store: Store, size: int, *, hosted: bool = False) -> list[Roll]:
    listed = [Roll(store, rank, size, hosted) for rank in range(size)]
    for one in listed:
        one.enter()
    return listed


@pytest.mark.parametrize("missing", [0, 2])
def test_the_rank_that_does_not_answer_is_named_by_all_others(missing: int) -> None:
    found: dict[int, dict[int, int]] = {}
    callers = [one for one in rolls(Store(), 4) if one.rank != missing]
    threads = [threading.Thread(target=lambda one=one: found.update({one.rank: one.call(0.0)})) for one in callers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert list(found.values()) == [{missing: os.getpid()}] * 3


@pytest.mark.waiting
def test_ranks_that_still_wait_are_given_their_time() -> None:
    first, second, _ = rolls(Store(), 3)
    later = threading.Timer(0.6, second.call, [0.0])  # after LATE_S, within its patience
    later.start()
    assert list(first.call(1.0)) == [2]
    later.join()


def test_nobody_is_missing_where_all_answer() -> None:
    store = Store()
    first, _ = rolls(store, 2)
    store.set("roll/here/1", "")
    assert first.call(0.0) == {}


@pytest.mark.parametrize("kind", [Gone, Stopped])
@pytest.mark.waiting
def test_without_an_answer_of_the_store_the_rank_that_holds_it_is_missing(kind: type[Store]) -> None:
    assert rolls(kind(), 2, hosted=True)[1].call(0.0) == {0: 0}
    assert rolls(kind(), 2, hosted=False)[1].call(0.0) == {}


@pytest.mark.parametrize(
    ("silent", "within", "message"),
    [
        ({1: 0}, 8.0, "rank 1 did not answer within 8 s."),
        ({3: 7, 1: 0, 5: 0}, 0.5, "ranks 1, 3 and 5 did not answer within 0.5 s."),
        ({0: 9}, 0.0, "rank 0 cannot be reached any more."),
    ],
)
def test_the_message_names_them(silent: dict[int, int], within: float, message: str) -> None:
    error = SilentRanksError(silent, within)
    assert error.message == message
    assert error.processes == tuple(process for process in silent.values() if process)
