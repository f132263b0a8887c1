"""The group of processes that measure together: one rank for each device, and a second group for their agreement."""

from __future__ import annotations

import contextlib
import datetime
import os
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist

from perfmodel.errors import UnavailableError, UsageError

#: kind of device -> backend of torch.distributed
BACKENDS = {"cpu": "gloo", "cuda": "nccl"}
#: after a failed exchange, how long a launcher has to notice a dead rank, and the others to answer the roll call [s]
_GRACE_S, _ROLL_S = 1.0, 5.0


@dataclass(frozen=True)
class Group:
    """One process among the ranks of a job.

    Attributes
    ----------
    rank, size : number of this rank from 0, and number of all.
    backend : "nccl" or "gloo".
    device : where the messages are.
    control : a gloo group of the same ranks, over which they agree while the measured one is busy.
    roll : another one, only to call the roll: it still works after an exchange has failed.
    timeout_s : how long a rank waits for the others [s].
    """

    rank: int
    size: int
    backend: str
    device: torch.device
    control: Any
    roll: Any
    timeout_s: float

    def call_roll(self, timeout_s: float = 0.0) -> None:
        """Wait until every rank is here, for ``timeout_s`` [s] instead of the group's limit where that is given.

        Raises
        ------
        UnavailableError
            When a rank does not come in time; on rank 0 the message names it.
        """
        limit_s = timeout_s or self.timeout_s
        try:
            dist.monitored_barrier(self.roll, timeout=datetime.timedelta(seconds=limit_s), wait_all_ranks=True)
        except RuntimeError as error:
            raise UnavailableError(
                f"not all {self.size} ranks answered within {limit_s:g} s: {_first_line(error)}.",
                remedy="Look at what the missing rank does; --rank-timeout sets the limit.",
            ) from None

    @contextlib.contextmanager
    def watched(self) -> Iterator[None]:
        """Explain an exchange that fails inside the block: name the rank that is missing.

        Raises
        ------
        UnavailableError
            When an exchange fails.
        """
        try:
            yield
        except RuntimeError as error:
            # a launcher that sees a rank die ends the others meanwhile, and names the one that died
            time.sleep(_GRACE_S)
            self.call_roll(_ROLL_S)
            raise UnavailableError(f"an exchange between the ranks failed: {_first_line(error)}.") from None

    def meet(self) -> None:
        """Let all ranks begin at about the same time."""
        dist.barrier(self.control)

    def slowest(self, values: Sequence[float]) -> list[float]:
        """Return the largest of each value over the ranks."""
        largest = torch.tensor(list(values), dtype=torch.float64)
        dist.all_reduce(largest, op=dist.ReduceOp.MAX, group=self.control)
        return [float(value) for value in largest]

    def gather(self, fact: Any) -> list[Any]:
        """Return a fact of every rank, in the order of the ranks."""
        facts: list[Any] = [None] * self.size
        dist.all_gather_object(facts, fact, group=self.control)
        return facts


def rank_of_environment() -> int | None:
    """Return the rank that a launcher gave this process (torchrun, srun with its variables); None outside a job."""
    text = os.environ.get("RANK", "")
    return int(text) if text.isdigit() else None


@contextlib.contextmanager
def joined(kind: str, num_gpus: int, timeout_s: float) -> Iterator[Group]:
    """Join the group that the environment describes, and leave it at the end.

    Parameters
    ----------
    kind : "cpu" or "cuda".
    num_gpus : ranks that are expected.
    timeout_s : how long a rank waits for the others [s].

    Raises
    ------
    UsageError
        When the job has another number of ranks.
    UnavailableError
        When the group cannot be joined, or this rank has no GPU.
    """
    size = int(os.environ.get("WORLD_SIZE", "1"))
    if size != num_gpus:
        raise UsageError(
            f"the job has {size} ranks, not {num_gpus}.", place="--num-gpus", remedy=f"Write --num-gpus {size}."
        )
    device = _own_device(kind)
    limit = datetime.timedelta(seconds=timeout_s)
    try:
        dist.init_process_group(BACKENDS[kind], timeout=limit)
    except (RuntimeError, ValueError) as error:
        raise UnavailableError(f"cannot join the group of ranks: {_first_line(error)}.") from None
    try:
        control, roll = (dist.new_group(backend="gloo", timeout=limit) for _ in range(2))
        yield Group(dist.get_rank(), size, BACKENDS[kind], device, control, roll, timeout_s)
    finally:
        with contextlib.suppress(RuntimeError):
            dist.destroy_process_group()


def _own_device(kind: str) -> torch.device:
    if kind == "cpu":
        return torch.device("cpu")
    local = int(os.environ.get("LOCAL_RANK", "0"))
    if local >= torch.cuda.device_count():
        raise UnavailableError(
            f"rank {local} of this machine has no GPU: there are {torch.cuda.device_count()}.",
            remedy="Ask for fewer with --num-gpus, or measure processes with --device cpu.",
        )
    torch.cuda.set_device(local)
    return torch.device("cuda", local)


def _first_line(error: BaseException) -> str:
    return next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__).rstrip(".")
