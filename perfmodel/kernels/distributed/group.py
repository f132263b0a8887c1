"""The group of processes that measure together: one rank for each device, and a second group for their agreement."""

from __future__ import annotations

import contextlib
import datetime
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch.distributed.rendezvous import rendezvous

from perfmodel.errors import InputFileError, UnavailableError, UsageError, first_line
from perfmodel.kernels.distributed.errand import Errands, give_up, is_stuck
from perfmodel.kernels.distributed.job import JobRank
from perfmodel.kernels.distributed.roll import Roll, SilentRanksError

Result = TypeVar("Result")

#: kind of device -> backend of torch.distributed
BACKENDS = {"cpu": "gloo", "cuda": "nccl"}
#: how long a rank waits for the others to start at least: they import torch, and a launcher starts them one by one [s]
_STARTING_S = 60.0
#: What torch reads when NCCL's group is made (torch/csrc/distributed/c10d/ProcessGroupNCCL.cpp, 2.2 and later). By
#: itself its watchdog sleeps a minute after an error and then ends the process with a stack. Here `Errands` notices
#: first, and the process leaves with the message and exit code of perfmodel: neither tear down nor dump, nor end it.
_NCCL_VARIABLES = {
    "TORCH_NCCL_ASYNC_ERROR_HANDLING": "0",
    "TORCH_NCCL_DUMP_ON_TIMEOUT": "0",
    "TORCH_NCCL_ENABLE_MONITORING": "0",
}
#: errors that all ranks have together: then NCCL's way out, in which each waits for the others, ends
_OF_ALL_RANKS = (UsageError, InputFileError)
#: torch's own limit of an exchange over NCCL is so many times that of perfmodel, which then always comes first
_LATER = 4.0


@dataclass(frozen=True)
class Group:
    """One process among the ranks of a job.

    Attributes
    ----------
    rank, size : number of this rank from 0, and number of all.
    backend : "nccl" or "gloo".
    device : where the messages are.
    control : a gloo group of the same ranks, over which they agree while the measured one is busy.
    roll : who answers once an exchange has failed.
    timeout_s : how long a rank waits for the others [s].
    errands : runs the exchanges where they may wait on a GPU for ever; None where torch ends each after the timeout.
    """

    rank: int
    size: int
    backend: str
    device: torch.device
    control: Any
    roll: Roll
    timeout_s: float
    errands: Errands | None = None

    def run(self, exchanges: Callable[[], Result]) -> Result:
        """Return what some exchanges return. They call `go_on`, or a method of this group, at least once a timeout.

        Raises
        ------
        UnavailableError
            When an exchange fails, as `watched`.
        """
        with self.watched():
            return exchanges() if self.errands is None else self.errands.run(lambda: self._on_device(exchanges))

    def _on_device(self, exchanges: Callable[[], Result]) -> Result:
        if self.device.type == "cuda":
            torch.cuda.set_device(self.device)  # each thread has its own
        return exchanges()

    def go_on(self) -> None:
        """Note that the exchanges go on."""
        if self.errands is not None:
            self.errands.go_on()

    @contextlib.contextmanager
    def watched(self) -> Iterator[None]:
        """Explain an exchange that fails inside the block: name the ranks that are missing.

        Raises
        ------
        UnavailableError
            When an exchange fails.
        """
        try:
            yield
        except RuntimeError as error:
            late = "timed out" in str(error).lower()  # else a connection broke, and others may not know of it yet
            silent = self.roll.call(0.0 if late else self.timeout_s)
            if silent:
                raise SilentRanksError(silent, self.timeout_s if late else 0.0) from None
            raise UnavailableError(f"an exchange between the ranks failed: {first_line(error)}.") from None

    def meet(self) -> None:
        """Let all ranks begin at about the same time."""
        self.go_on()
        dist.barrier(self.control)
        self.go_on()

    def slowest(self, values: Sequence[float]) -> list[float]:
        """Return the largest of each value over the ranks."""
        largest = torch.tensor(list(values), dtype=torch.float64)
        self.go_on()
        dist.all_reduce(largest, op=dist.ReduceOp.MAX, group=self.control)
        self.go_on()
        return [float(value) for value in largest]

    def gather(self, fact: Any) -> list[Any]:
        """Return a fact of every rank, in the order of the ranks."""
        facts: list[Any] = [None] * self.size
        self.go_on()
        dist.all_gather_object(facts, fact, group=self.control)
        self.go_on()
        return facts


@contextlib.contextmanager
def joined(job: JobRank, kind: str, num_gpus: int, timeout_s: float) -> Iterator[Group]:
    """Join the group of a job's ranks, and leave it at the end.

    Parameters
    ----------
    job : this rank.
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
    if job.size != num_gpus:
        raise UsageError(
            f"the job has {job.size} ranks, not {num_gpus}.", place="--num-gpus", remedy=f"Write --num-gpus {job.size}."
        )
    device, backend = _own_device(kind, job), BACKENDS[kind]
    limit = datetime.timedelta(seconds=timeout_s)
    errands = _errands(backend, device, timeout_s)
    try:
        roll = _entered(job, max(timeout_s, _STARTING_S))
        dist.init_process_group(
            backend, store=roll.store, rank=job.rank, world_size=job.size,
            timeout=limit if errands is None else _LATER * limit,
        )  # fmt: skip
    except (RuntimeError, ValueError) as error:
        raise UnavailableError(f"cannot join the group of ranks: {first_line(error)}.") from None
    try:
        control = dist.new_group(backend="gloo", timeout=limit)
        yield Group(job.rank, job.size, backend, device, control, roll, timeout_s, errands)
    except BaseException as error:
        if errands is not None and not isinstance(error, _OF_ALL_RANKS):
            give_up()
        raise
    finally:
        if not is_stuck():
            with contextlib.suppress(RuntimeError):
                leave = dist.destroy_process_group
                leave() if errands is None else errands.run(leave)


def _errands(backend: str, device: torch.device, timeout_s: float) -> Errands | None:
    """Return who runs the exchanges of a backend; for NCCL, keep torch's watchdog from ending this process first."""
    if backend != "nccl":
        return None
    for name, value in _NCCL_VARIABLES.items():
        os.environ.setdefault(name, value)
    return Errands(timeout_s, lambda: _nccl_failure(device))


def _nccl_failure(device: torch.device) -> str:
    """Return what NCCL reports of its communicators, as that a partner closed its connection; empty while all is well.

    torch's watchdog asks NCCL ten times a second; a torch without ``get_error`` keeps the answer to itself.
    """
    backend: Any = dist.group.WORLD._get_backend(device) if dist.group.WORLD is not None else None
    error = backend.get_error() if hasattr(backend, "get_error") else None
    return "" if error is None or error.name == "SUCCESS" else f"NCCL reports {error.name}"


def _entered(job: JobRank, timeout_s: float) -> Roll:
    """Return the roll of a job once this rank is on it; the store is that of rank 0, or of torch's launcher."""
    url = f"tcp://{job.address}:{job.port}"
    store, *_ = next(rendezvous(url, job.rank, job.size, timeout=datetime.timedelta(seconds=timeout_s)))
    roll = Roll(store, job.rank, job.size, hosted=os.environ.get("TORCHELASTIC_USE_AGENT_STORE") != str(True))
    roll.enter()
    return roll


def _own_device(kind: str, job: JobRank) -> torch.device:
    if kind == "cpu":
        return torch.device("cpu")
    present = torch.cuda.device_count()
    # srun --gpus-per-task shows each rank its own GPU alone
    local = 0 if job.by_srun and present == 1 else job.local_rank
    if local >= present:
        raise UnavailableError(
            f"rank {local} of this machine has no GPU: there are {present}.",
            remedy="Ask for fewer with --num-gpus, or measure processes with --device cpu.",
        )
    torch.cuda.set_device(local)
    return torch.device("cuda", local)
