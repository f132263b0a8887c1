"""Starting the ranks of a job on this machine with torch.distributed's launcher."""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from perfmodel.errors import UnavailableError


def launch(num_gpus: int, entry: Callable[..., int], arguments: Sequence[Any]) -> int:
    """Run a function in ``num_gpus`` processes, one rank each, and return what rank 0 returned.

    Parameters
    ----------
    num_gpus : ranks.
    entry : a function of a module, which a new process can import; it is called with ``arguments`` and joins the group
        that its environment describes.
    arguments : values that can be pickled.

    Raises
    ------
    UnavailableError
        When a rank fails or dies: the launcher ends the others, and the message names the first one.
    KeyboardInterrupt
        On Ctrl-C, without a word from the ranks.
    """
    from torch.distributed.elastic.multiprocessing.api import SignalException
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
    from torch.distributed.launcher.api import LaunchConfig, elastic_launch

    for name in ("torch.distributed.elastic", "torch.distributed.elastic.agent.server.api"):
        logging.getLogger(name).setLevel(logging.CRITICAL)
    # the ranks share the cores; torch's launcher sets the same, with a warning
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    config = LaunchConfig(
        min_nodes=1,
        max_nodes=1,
        nproc_per_node=num_gpus,
        run_id="perfmodel",
        rdzv_backend="c10d",
        rdzv_endpoint="127.0.0.1:0",
        max_restarts=0,
        monitor_interval=0.1,
        start_method="spawn",
    )
    sys.stdout.flush()
    try:
        with _ranks_start_uninterrupted():
            results = elastic_launch(config, _rank)(entry, *arguments)
    except SignalException as error:
        if error.sigval == signal.SIGINT:
            raise KeyboardInterrupt from None
        raise UnavailableError(f"signal {int(error.sigval)} ended the ranks.") from None
    except ChildFailedError as error:
        rank, failure = error.get_first_failure()
        raise UnavailableError(
            f"rank {rank} of {num_gpus} failed: {_reason(failure)}.",
            remedy="With -o FILE.json the finished rows are kept; --resume measures the others.",
        ) from None
    return int(results[0])


def _rank(entry: Callable[..., int], *arguments: Any) -> int:
    """Run the entry of one rank; from here on Ctrl-C reaches it, and ends it at once: other ranks wait for it."""
    try:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
        return entry(*arguments)
    except KeyboardInterrupt:
        sys.stdout.flush()
        os._exit(130)


@contextlib.contextmanager
def _ranks_start_uninterrupted() -> Iterator[None]:
    """Let new processes start with Ctrl-C blocked: one that is still importing would print a traceback.

    They inherit the mask of the thread that starts them. Another thread keeps taking the signal for this process.
    """
    ended = threading.Event()
    taker = threading.Thread(target=ended.wait, daemon=True)
    taker.start()
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        ended.set()
        taker.join()


def _reason(failure: Any) -> str:
    if failure.exitcode < 0:
        return f"signal {-failure.exitcode} ended it"
    lines = [line.strip() for line in str(failure.message).splitlines() if line.strip()]
    message = lines[-1] if lines else ""
    return message.rstrip(".") if message and failure.exitcode == 1 else f"it ended with exit code {failure.exitcode}"
