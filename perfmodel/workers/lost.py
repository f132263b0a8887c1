"""The end of work before all of it was done: what was finished is kept beside it."""

from __future__ import annotations

from typing import TypeAlias

from perfmodel.errors import UnavailableError


class WorkersLostError(UnavailableError):
    """A worker died, or the scheduler of a cluster no longer answers, before all work was done."""


#: what ends work early, and leaves what is done to be reported
Ended: TypeAlias = KeyboardInterrupt | WorkersLostError
#: the same, to catch
ENDS = (KeyboardInterrupt, WorkersLostError)
