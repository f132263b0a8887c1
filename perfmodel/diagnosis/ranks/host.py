"""What a rank without a GPU computes: its operators, without the waits for exchanges that enclose no operator.

In the backward pass, autograd evaluates one node after the other: "autograd::engine::evaluate_function: AddmmBackward0"
encloses "AddmmBackward0", which encloses the operators of that node. FSDP gathers parameters and scatters gradients in
hooks of these nodes, and waits there for the exchange. So a node that encloses operators computes only within them;
what it spends outside of them is its hooks'. A node without operators, as one written in C++, computes all of its time.
DDP's hooks only queue exchanges; there the rule leaves out what autograd itself takes, 1 to 3 % of a small step.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from perfmodel.core.arrays import distinct
from perfmodel.diagnosis.intervals import minus, union
from perfmodel.profile.profile import Profile, ProfileEntry
from perfmodel.profile.timeline import Floats, Timeline

#: how autograd's engine names the evaluation of a node; the name of the node follows
_EVALUATES = "autograd::engine::evaluate_function: "
#: operators that only queue an exchange or wait for it, and so do not compute
_EXCHANGES = ("c10d::", "_c10d_functional::", "c10d_functional::")


def is_of_host(profile: Profile) -> bool:
    """Return whether a profile has a time line without GPU work: its times are those of operators on the CPU."""
    return profile.timeline is not None and not profile.timeline.overlaps_window().any()


def computing(timeline: Timeline) -> Floats:
    """Return when the operators on the CPU compute: a union, shape (n, 2) [s].

    It is the union of all operators but the nodes of autograd that enclose others, less those that queue exchanges.
    """
    ops = timeline.ops
    works, exchanges = ~_encloses(timeline), _exchange(timeline.names)[ops.name]
    return minus(union(ops.start_s[works], ops.end_s[works]), union(ops.start_s[exchanges], ops.end_s[exchanges]))


def computing_entries(profile: Profile) -> tuple[ProfileEntry, ...]:
    """Return the entries of a profile without GPU work whose operators compute, as `computing` counts them."""
    timeline = profile.timeline
    if timeline is None:
        return profile.entries
    outer = {timeline.names[name] for name in distinct(timeline.ops.name[_encloses(timeline)]).tolist()}
    return tuple(
        entry
        for entry in profile.entries
        if entry.launched_by not in outer and not entry.launched_by.startswith(_EXCHANGES)
    )


def _encloses(timeline: Timeline) -> NDArray[np.bool_]:
    """Return which operators are nodes of autograd, or their evaluations, that enclose others; shape (operators,)."""
    names, parent = timeline.names, timeline.ops.parent
    nodes = {name.removeprefix(_EVALUATES) for name in names if name.startswith(_EVALUATES)}
    of_autograd = np.array([name.startswith(_EVALUATES) or name in nodes for name in names], dtype=bool)
    outer = np.zeros(parent.size, dtype=bool)
    outer[parent[parent >= 0]] = True
    return np.asarray(outer & of_autograd[timeline.ops.name])


def _exchange(names: tuple[str, ...]) -> NDArray[np.bool_]:
    return np.array([name.startswith(_EXCHANGES) for name in names], dtype=bool)
