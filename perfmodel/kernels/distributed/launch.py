"""Starting the ranks of a job on this machine with torch.distributed's launcher."""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from multiprocessing import resource_tracker
from typing import Any

from perfmodel.errors import UnavailableError
from perfmodel.kernels.distributed.errand import is_stuck
from perfmodel.kernels.distributed.roll import SilentRanksError


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
        When a rank fails or dies: the launcher ends the others, and the message names the first one, or is that of the
        first rank that raised an UnavailableError.
    KeyboardInterrupt
        On Ctrl-C, without a word from the ranks, and whatever the program's own handler of another signal raises.
    """
    from torch.distributed.elastic.multiprocessing.api import SignalException
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
    from torch.distributed.launcher.api import LaunchConfig, elastic_launch

    for name in ("torch.distributed.elastic", "torch.distributed.elastic.agent.server.api", "torch.multiprocessing"):
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
    own = signal.getsignal(signal.SIGTERM)  # which torch's launcher replaces
    with tempfile.TemporaryDirectory() as folder:
        explanation = os.path.join(folder, "explanation")
        try:
            with _ranks_start_uninterrupted():
                results = elastic_launch(config, _rank)(explanation, entry, *arguments)
        except SignalException as error:
            if error.sigval == signal.SIGINT:
                raise KeyboardInterrupt from None
            if error.sigval == signal.SIGTERM and callable(own):
                own(signal.SIGTERM, None)
            raise UnavailableError(f"signal {int(error.sigval)} ended the ranks.") from None
        except ChildFailedError as error:
            rank, failure = error.get_first_failure()
            message, remedy = _explained(explanation) or (f"rank {rank} of {num_gpus} failed: {_reason(failure)}.", "")
            raise UnavailableError(message, remedy=remedy) from None
    return int(results[0])


def _rank(explanation: str, entry: Callable[..., int], *arguments: Any) -> int:
    """Run the entry of one rank; from here on Ctrl-C reaches it, and ends it at once: other ranks wait for it.

    The message of an UnavailableError is left in the file ``explanation``.
    """
    try:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
        return entry(*arguments)
    except KeyboardInterrupt:
        sys.stdout.flush()
        os._exit(130)
    except UnavailableError as error:
        with contextlib.suppress(FileExistsError), open(explanation, "x") as stream:
            stream.write(f"{error.message}\n{error.remedy}")
        if isinstance(error, SilentRanksError):
            _end(error.processes)
        raise
    finally:
        if is_stuck():
            sys.stdout.flush()
            os._exit(1)


def _end(processes: Sequence[int]) -> None:
    """Kill ranks that do not answer: the launcher asks a stopped one to end, and waits half a minute for it."""
    for process in processes:
        with contextlib.suppress(ProcessLookupError):
            os.kill(process, signal.SIGKILL)


def _explained(path: str) -> tuple[str, str] | None:
    """Return message and remedy of the rank that explained the failure; None where none has."""
    with contextlib.suppress(FileNotFoundError), open(path) as stream:
        message, _, remedy = stream.read().partition("\n")
        return message, remedy
    return None


@contextlib.contextmanager
def _ranks_start_uninterrupted() -> Iterator[None]:
    """Let new processes start with Ctrl-C blocked: one that is still importing would print a traceback.

    They inherit the mask of the thread that starts them. Another thread keeps taking the signal for this process.
    """
    # started with the first process, it would unblock the signal again in the thread that starts the processes
    resource_tracker.ensure_running()
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
    # what the rank raised, with its traceback beside it
    raised = failure.message["message"] if isinstance(failure.message, dict) else failure.message
    lines = [line.strip() for line in str(raised).splitlines() if line.strip()]
    message = lines[-1] if lines else ""
    return message.rstrip(".") if message and failure.exitcode == 1 else f"it ended with exit code {failure.exitcode}"
