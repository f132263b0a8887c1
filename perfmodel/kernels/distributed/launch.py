"""Starting the ranks of a job on this machine with torch.distributed's launcher."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable, Sequence
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
    """
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
    from torch.distributed.launcher.api import LaunchConfig, elastic_launch

    logging.getLogger("torch.distributed.elastic").setLevel(logging.CRITICAL)
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
        results = elastic_launch(config, entry)(*arguments)
    except ChildFailedError as error:
        rank, failure = error.get_first_failure()
        raise UnavailableError(
            f"rank {rank} of {num_gpus} failed: {_reason(failure)}.",
            remedy="With -o FILE.json the finished rows are kept; --resume measures the others.",
        ) from None
    return int(results[0])


def _reason(failure: Any) -> str:
    if failure.exitcode < 0:
        return f"signal {-failure.exitcode} ended it"
    lines = [line.strip() for line in str(failure.message).splitlines() if line.strip()]
    message = lines[-1] if lines else ""
    return message.rstrip(".") if message and failure.exitcode == 1 else f"it ended with exit code {failure.exitcode}"
