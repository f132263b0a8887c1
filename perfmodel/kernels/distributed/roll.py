"""The roll of the ranks, called once an exchange between them has failed: who does not answer any more."""

from __future__ import annotations

import os
import platform
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from perfmodel.errors import UnavailableError

#: how much later than this rank others may notice that an exchange has failed [s]
LATE_S = 3.0
#: between two looks into the store [s]
_LOOK_S = 0.1


class SilentRanksError(UnavailableError):
    """Some ranks do not answer.

    Parameters
    ----------
    silent : their numbers, each with that of its process, 0 where that is on another host.
    within_s : the limit that they missed [s], or 0 where they cannot be reached.
    """

    def __init__(self, silent: Mapping[int, int], within_s: float) -> None:
        *others, last = map(str, sorted(silent))
        names = f"ranks {', '.join(others)} and {last}" if others else f"rank {last}"
        limit = "; --rank-timeout sets the limit" if within_s else ""
        super().__init__(
            f"{names} did not answer within {within_s:g} s." if within_s else f"{names} cannot be reached any more.",
            remedy=f"Look at what became of {'them' if others else 'it'}{limit}.",
        )
        self.processes = tuple(filter(None, silent.values()))


@dataclass(frozen=True)
class Roll:
    """A list in the store of the job, in which ranks that notice a failure write that they are still here.

    Attributes
    ----------
    store : of torch.distributed.
    rank, size : number of this rank, and number of all.
    hosted : whether rank 0 holds the store, and not a launcher.
    """

    store: Any
    rank: int
    size: int
    hosted: bool

    def enter(self) -> None:
        """Write which process this rank is."""
        self.store.set(f"roll/process/{self.rank}", f"{os.getpid()} {platform.node()}")

    def call(self, patience_s: float) -> dict[int, int]:
        """Write that this rank is here, and return the ranks that do not: dead, stopped, or busy with something else.

        Parameters
        ----------
        patience_s : how long others may still wait in the exchange that has failed here [s].

        Returns
        -------
        Each of these ranks with its process, 0 where that is on another host.
        """
        found: list[dict[int, int]] = []
        # a store in a process that is stopped answers nothing, and torch's client waits for ever
        thread = threading.Thread(target=lambda: found.append(self._silent(patience_s)), daemon=True)
        thread.start()
        thread.join(patience_s + 2.0 * LATE_S)
        if self.hosted and self.rank == 0:
            time.sleep(LATE_S)  # the others still look into the store of this process
        return found[0] if found else self._without_store()

    def _silent(self, patience_s: float) -> dict[int, int]:
        try:
            self.store.set(f"roll/here/{self.rank}", "")
            return {rank: self._process(rank) for rank in self._look(patience_s)}
        except RuntimeError:
            return self._without_store()

    def _without_store(self) -> dict[int, int]:
        """Return the ranks that are missing where the store is: the one that holds it, if it is a rank."""
        return {0: 0} if self.hosted and self.rank else {}

    def _look(self, patience_s: float) -> list[int]:
        """Return the ranks that have not written by the time that they should have.

        One that is missing alone is not waiting: those that wait for it have all written.
        """
        absent = [rank for rank in range(self.size) if rank != self.rank]
        begin = time.monotonic()
        while True:
            absent = [rank for rank in absent if not self.store.check([f"roll/here/{rank}"])]
            limit_s = LATE_S + (patience_s if len(absent) > 1 else 0.0)
            if not absent or time.monotonic() - begin > limit_s:
                return absent
            time.sleep(_LOOK_S)

    def _process(self, rank: int) -> int:
        """Return the process of a rank, 0 where it is on another host."""
        number, _, host = self.store.get(f"roll/process/{rank}").decode().partition(" ")
        return int(number) if host == platform.node() else 0
