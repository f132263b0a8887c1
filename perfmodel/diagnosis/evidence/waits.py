"""What the host was doing around a call: the operator, the named range, the Python line."""

from __future__ import annotations

import numpy as np

from perfmodel.profile.timeline import Ints, Timeline

#: operators inside which a tensor's value is fetched: their own name says more than that of what they call
_FETCHES = ("aten::item", "aten::is_nonzero", "aten::equal", "aten::nonzero", "aten::to", "aten::unique2")


def ops_around(timeline: Timeline, op: Ints) -> Ints:
    """Return what to call the operators around some calls: the fetch (``aten::item``) around each, else the innermost.

    Parameters
    ----------
    timeline : the traced run.
    op : indices into ``timeline.ops``, or -1 for none; shape (n,).

    Returns
    -------
    Numbers of names in ``timeline.names``, -1 for none; shape (n,).
    """
    ops = timeline.ops
    if not len(ops):
        return np.full(op.shape, -1, dtype=np.int64)
    fetches = np.array([name in _FETCHES for name in timeline.names], dtype=bool)[ops.name]
    found = np.where(op >= 0, ops.name[np.maximum(op, 0)], -1)
    todo, at = np.arange(op.size), op
    while todo.size:
        todo, at = todo[at >= 0], at[at >= 0]
        here = fetches[at]
        found[todo[here]] = ops.name[at[here]]
        todo, at = todo[~here], ops.parent[at[~here]] if ops.parent.size else np.full(int((~here).sum()), -1)
    return found


def op_around(timeline: Timeline, op: int) -> str:
    """Return what `ops_around` finds for one call, or an empty text."""
    name = int(ops_around(timeline, np.array([op]))[0])
    return timeline.names[name] if name >= 0 else ""


def stack_of(timeline: Timeline, call: int) -> str:
    """Return the innermost Python frame of a file around a wait, where the trace has it."""
    frames = timeline.api_stacks.get(call) or timeline.stacks.get(int(timeline.api.op[call]), ())
    own = [frame for frame in frames if ".py" in frame and not frame.startswith(("torch/", "<built-in"))]
    return (own or [*frames, ""])[-1]


def calls_of(timeline: Timeline, call: Ints) -> list[str]:
    """Return what to call each wait: the operator around it, else the API call itself."""
    api = timeline.api
    if not len(api):
        return ["unknown call"] * call.size
    known = np.maximum(call, 0)
    around = ops_around(timeline, np.where(call >= 0, api.op[known], -1))
    name = np.where(around >= 0, around, np.where(call >= 0, api.name[known], -1))
    return [timeline.names[one] if one >= 0 else "unknown call" for one in name.tolist()]
