"""The group of ranks over NCCL: exchanges that never end name the missing rank, and torch does not act first."""

from __future__ import annotations

import contextlib
import os
import threading
from types import SimpleNamespace

import pytest

torch = pytest.importorskip("torch")

from perfmodel.errors import UnavailableError, UsageError  # noqa: E402 -- after the check that torch is there
from perfmodel.kernels.distributed import errand, group, roll  # noqa: E402
from perfmodel.kernels.distributed.errand import Errands, is_stuck  # noqa: E402
from perfmodel.kernels.distributed.group import Group  # noqa: E402
from perfmodel.kernels.distributed.job import JobRank  # noqa: E402
from perfmodel.kernels.distributed.roll import Roll, SilentRanksError  # noqa: E402
from tests.kernels.roll_store import Store  # noqa: E402

pytestmark = pytest.mark.skipif(not torch.distributed.is_available(), reason="this torch has no torch.distributed")


class Device:
    """A GPU on which the kernel of an exchange spins for ever: what waits for its events does not return."""

    def __init__(self) -> None:
        self.released = threading.Event()

    def synchronize(self) -> None:
        self.released.wait()


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(roll, "LATE_S", 0.3)
    monkeypatch.setattr(roll, "_LOOK_S", 0.01)
    monkeypatch.setattr(errand, "_LOOK_S", 0.01)


def without_rank_1() -> Store:
    """Return a store in which rank 1 wrote its process, and which it has left."""
    return Store({"roll/process/1": "0 elsewhere"})


def group_of(errands: Errands | None, timeout_s: float) -> Group:
    ranks = Roll(without_rank_1(), 0, 2, hosted=False)
    return Group(0, 2, "nccl", torch.device("cpu"), None, ranks, timeout_s, errands)


@pytest.mark.parametrize(
    ("limit_s", "failure", "message"),
    [
        (0.2, "", "rank 1 did not answer within 0.2 s."),
        (60.0, "NCCL reports COMM_ERROR", "rank 1 cannot be reached any more."),
    ],
)
def test_an_exchange_that_never_ends_names_the_missing_rank(limit_s: float, failure: str, message: str) -> None:
    device = Device()
    try:
        with pytest.raises(SilentRanksError) as caught:
            group_of(Errands(limit_s, lambda: failure), limit_s).run(device.synchronize)
        assert caught.value.message == message
        assert is_stuck(), "the process has to end without this thread"
    finally:
        device.released.set()


def test_what_fails_while_all_ranks_answer_is_the_message() -> None:
    def fails() -> None:
        raise RuntimeError("ncclInvalidUsage: two ranks on one device\nand a stack")

    one = group_of(Errands(60.0, str), 60.0)
    one.roll.store.set("roll/here/1", "")
    with pytest.raises(UnavailableError, match=r"failed: ncclInvalidUsage: two ranks on one device\.$"):
        one.run(fails)


def test_exchanges_run_in_a_thread_of_their_own_only_where_they_may_block() -> None:
    assert group_of(None, 60.0).run(threading.current_thread) is threading.current_thread()
    assert group_of(Errands(60.0, str), 60.0).run(threading.current_thread) is not threading.current_thread()


@pytest.mark.parametrize(
    ("backend", "text"),
    [
        (SimpleNamespace(get_error=lambda: SimpleNamespace(name="SUCCESS")), ""),
        (SimpleNamespace(get_error=lambda: SimpleNamespace(name="COMM_ERROR")), "NCCL reports COMM_ERROR"),
        (SimpleNamespace(), ""),  # a torch that does not tell
    ],
)
def test_what_nccl_reports_is_asked_of_torch(monkeypatch: pytest.MonkeyPatch, backend: object, text: str) -> None:
    world = SimpleNamespace(_get_backend=lambda device: backend)
    monkeypatch.setattr(group, "dist", SimpleNamespace(group=SimpleNamespace(WORLD=world)))
    assert group._nccl_failure(torch.device("cuda", 0)) == text


@pytest.fixture
def left(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Join groups without other ranks or a GPU, over "NCCL", and collect that they are left as usual."""
    calls: list[str] = []
    distributed = SimpleNamespace(
        init_process_group=lambda *_, **__: None, new_group=lambda **_: None, group=SimpleNamespace(WORLD=None),
        destroy_process_group=lambda: calls.append("destroyed"),
    )  # fmt: skip
    monkeypatch.setattr(group, "dist", distributed)
    monkeypatch.setattr(group, "_own_device", lambda *_: torch.device("cpu"))
    monkeypatch.setattr(group, "_entered", lambda *_: Roll(without_rank_1(), 0, 2, hosted=False))
    monkeypatch.setattr(group, "_errands", lambda *found: Errands(found[-1], str))
    monkeypatch.setattr(errand, "_given_up", [])
    return calls


JOB = JobRank(0, 2, 0, "127.0.0.1", 1)


@pytest.mark.parametrize(
    ("error", "stuck"),
    [
        (None, False),
        (UsageError("the records differ."), False),
        (UnavailableError("rank 1 cannot be reached any more."), True),
        (KeyboardInterrupt(), True),
    ],
)
def test_a_group_over_nccl_is_left_as_usual_only_with_the_other_ranks(
    left: list[str], error: BaseException | None, stuck: bool
) -> None:
    with contextlib.suppress(UsageError, UnavailableError, KeyboardInterrupt), group.joined(JOB, "cuda", 2, 60.0):
        if error is not None:
            raise error
    assert (left, is_stuck()) == ([] if stuck else ["destroyed"], stuck)


def test_a_way_out_that_never_ends_is_given_up(left: list[str]) -> None:
    device = Device()
    group.dist.destroy_process_group = device.synchronize
    try:
        with group.joined(JOB, "cuda", 2, 0.2):
            pass
        assert is_stuck()
    finally:
        device.released.set()


def test_torch_ends_no_process_over_nccl_unless_the_user_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in group._NCCL_VARIABLES:
        monkeypatch.setenv(name, "")  # restored afterwards
        monkeypatch.delenv(name)
    monkeypatch.setenv("TORCH_NCCL_ASYNC_ERROR_HANDLING", "3")
    assert group._errands("gloo", torch.device("cpu"), 5.0) is None
    assert "TORCH_NCCL_DUMP_ON_TIMEOUT" not in os.environ
    errands = group._errands("nccl", torch.device("cuda", 0), 5.0)
    assert errands is not None
    assert errands.limit_s == 5.0
    assert os.environ["TORCH_NCCL_ASYNC_ERROR_HANDLING"] == "3"
    assert os.environ["TORCH_NCCL_DUMP_ON_TIMEOUT"] == "0"
