"""Collectives as the command line of `bench --num-gpus` names them, and what is checked before any rank starts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from perfmodel.core.machine_parts import COLLECTIVES
from perfmodel.errors import UnavailableError, UsageError

if TYPE_CHECKING:
    from perfmodel.operators import Operator

#: most ranks that one machine is asked to start
_MOST_RANKS = 1024


def check_ranks(num_gpus: int, timeout_s: float) -> None:
    """Raise a UsageError for a number of ranks or a time limit that is impossible."""
    if not 2 <= num_gpus <= _MOST_RANKS:
        raise UsageError(f"{num_gpus} ranks cannot exchange.", place="--num-gpus", remedy=f"Give 2 to {_MOST_RANKS}.")
    if not 0 < timeout_s < float("inf"):
        raise UsageError(f"{timeout_s} is no number of seconds.", place="--rank-timeout", remedy="Give 120, say.")


def ranks_of_job(words: Sequence[str]) -> int | None:
    """Return how many ranks torchrun or srun started, where the command line names a collective; else None."""
    from perfmodel.kernels.distributed.job import job_rank

    if not any(name in COLLECTIVES for name in _named(words)):
        return None
    job = job_rank()
    return None if job is None or job.size < 2 else job.size


def _named(words: Sequence[str]) -> list[str]:
    """Return the operators on a command line."""
    from perfmodel.operators import spelled

    return [spelled(word) for word in words if "=" not in word]


def refuse_unmeasured(words: Sequence[str]) -> None:
    """Raise a UsageError for an operator that no single device runs, before a CPU is calibrated for it.

    Parameters
    ----------
    words : those of the command line. In a file such operators are skipped, and the others are measured.
    """
    for name in _named(words):
        if name in COLLECTIVES:
            raise UsageError(
                f"{name} runs among ranks.",
                place="bench",
                remedy="Measure collectives in a run of their own, with --num-gpus 2, say.",
            )
        if name == "memcpy":
            raise UsageError(
                "bench does not measure memcpy.",
                place="bench",
                remedy="perfmodel calibrate measures what copies reach.",
            )


def check_gpus(num_gpus: int) -> None:
    """Raise an UnavailableError where this machine has fewer GPUs."""
    from perfmodel.kernels.device.cuda import gpu_count

    present = gpu_count()
    if present < num_gpus:
        raise UnavailableError(
            f"this machine has {present} GPU{'s' * (present != 1)}, not {num_gpus}.",
            remedy="Ask for fewer, start one process a GPU with torchrun, or measure processes with --device cpu.",
        )


def collectives(words: Sequence[str], num_gpus: int) -> list[Operator]:
    """Return the collectives on the command line; ``num_gpus`` is filled in where it is not written.

    Raises
    ------
    UsageError
        When there is none, one is no collective, or has another number of GPUs.
    """
    from perfmodel.kernels.distributed.exchanges import NAMES
    from perfmodel.measure.benchmark.jobs import points
    from perfmodel.operators.parse import parse_operators

    if not words:
        words = [word for name in NAMES for word in (name, "bytes=1KiB..64MiB")]
    parsed = [point for op in parse_operators(_with_ranks(words, num_gpus)) for point in points(op)]
    for op in parsed:
        if op.op not in NAMES:
            raise UsageError(
                f"{op.op} is no exchange between ranks.", place="--num-gpus", remedy=f"Collectives: {', '.join(NAMES)}."
            )
        if getattr(op, "num_gpus", num_gpus) != num_gpus:
            raise UsageError(
                f"num_gpus={op.params()['num_gpus']} is not --num-gpus {num_gpus}.", place=op.op, remedy="Remove one."
            )
    return parsed


def _with_ranks(words: Sequence[str], num_gpus: int) -> list[str]:
    """Add ``num_gpus`` to each collective that does not have it."""
    from perfmodel.kernels.distributed.exchanges import NAMES

    result: list[str] = []
    for index, word in enumerate(words):
        result.append(word)
        key, equals, _ = word.partition("=")
        if equals:
            continue
        own = []
        for following in words[index + 1 :]:
            if "=" not in following:
                break
            own.append(following.partition("=")[0])
        if key in NAMES and "num_gpus" not in own:
            result.append(f"num_gpus={num_gpus}")
    return result
