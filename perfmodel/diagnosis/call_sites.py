"""Where a call on the host comes from: the framework operator around it, and the line of Python."""

from __future__ import annotations

import numpy as np

from perfmodel.profile.timeline import Ints, Timeline

#: operators that fetch the value of a tensor: their names tell more than the names of the operators that they call
_FETCHES = ("aten::item", "aten::is_nonzero", "aten::equal", "aten::nonzero", "aten::to", "aten::unique2")


def operators_around(timeline: Timeline, op: Ints) -> Ints:
    """Return the name of the operator around each of some calls: of a fetch (``aten::item``), else of the innermost.

    Parameters
    ----------
    timeline : the traced run.
    op : indices into ``timeline.ops`` of the innermost operators around the calls, -1 for none; shape (n,).

    Returns
    -------
    Indices into ``timeline.names``, -1 for none; shape (n,).
    """
    ops = timeline.ops
    if not len(ops):
        return np.full(op.shape, -1, dtype=np.int64)
    fetches = np.array([name in _FETCHES for name in timeline.names], dtype=bool)[ops.name]
    names = np.where(op >= 0, ops.name[np.maximum(op, 0)], -1)
    # Walk up the parents of all calls at once, until each has met a fetch or has no parent left.
    pending, ancestor = np.arange(op.size), op
    while pending.size:
        pending, ancestor = pending[ancestor >= 0], ancestor[ancestor >= 0]
        is_fetch = fetches[ancestor]
        names[pending[is_fetch]] = ops.name[ancestor[is_fetch]]
        pending, ancestor = pending[~is_fetch], ancestor[~is_fetch]
        ancestor = ops.parent[ancestor] if ops.parent.size else np.full(ancestor.shape, -1)
    return names


def operator_around(timeline: Timeline, op: int) -> str:
    """Return the result of `operators_around` for one call as text; empty for none."""
    name = int(operators_around(timeline, np.array([op]))[0])
    return timeline.names[name] if name >= 0 else ""


def python_line(timeline: Timeline, call: int) -> str:
    """Return the innermost line of the user's Python around a wait; empty where the trace has none."""
    frames = timeline.api_stacks.get(call) or timeline.stacks.get(int(timeline.api.op[call]), ())
    of_user = [frame for frame in frames if ".py" in frame and not frame.startswith(("torch/", "<built-in"))]
    return of_user[-1] if of_user else ""


def wait_labels(timeline: Timeline, call: Ints) -> list[str]:
    """Return a label for each wait: the operator around it, else the API call itself; ``call`` may hold -1."""
    api = timeline.api
    if not len(api):
        return ["unknown call"] * call.size
    valid = np.maximum(call, 0)
    around = operators_around(timeline, np.where(call >= 0, api.op[valid], -1))
    names = np.where(around >= 0, around, np.where(call >= 0, api.name[valid], -1))
    return [timeline.names[name] if name >= 0 else "unknown call" for name in names.tolist()]
