"""The error of work whose workers are gone: what they had finished may be kept."""

from __future__ import annotations

from perfmodel.errors import UnavailableError


class WorkersLostError(UnavailableError):
    """A worker died, or the scheduler of a cluster no longer answers, before all work was done.

    Attributes
    ----------
    kept : the result of what was done, where the work has one.
    """

    kept: object = None
