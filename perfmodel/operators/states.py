"""The state that a server carries from one step of a sequence to the next, for operators that have one."""

from __future__ import annotations

from typing import Any

from perfmodel.core.work import Tensor
from perfmodel.errors import UsageError


def check_carried(op: Any) -> None:
    """Refuse the gradient of a call with a carried state.

    Raises
    ------
    UsageError
        ``carried`` and ``backward`` at once.
    """
    if op.carried and op.backward:
        raise UsageError(
            "carried=true has no backward pass here.", place=op.op, remedy="Leave out carried, or backward."
        )


def carried_states(op: Any) -> tuple[tuple[Tensor, ...], tuple[Tensor, ...]]:
    """Return the first state, which is read, and the last, which is written [batch, heads, d, e] in fp32, if any."""
    if not op.carried:
        return (), ()
    state = (op.batch, op.heads, op.head_dim, op.value_dim)
    return (Tensor.input("state", state, "fp32"),), (Tensor.output("last_state", state, "fp32"),)
