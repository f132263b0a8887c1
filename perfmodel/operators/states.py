"""What operators with a state share: heads that share keys, and a state carried between steps."""

from __future__ import annotations

from typing import Any

from perfmodel.core.work import Number, Tensor
from perfmodel.errors import UsageError
from perfmodel.operators.checks import check_groups


def check_key_heads(op: Any) -> None:
    """Refuse heads that no whole groups of them share the queries and keys of.

    Raises
    ------
    UsageError
        ``heads`` is not a multiple of ``key_heads``.
    """
    remedy = "Each key head serves a group of heads; the groups have one size."
    check_groups(op.op, remedy, heads=op.heads, key_heads=op.key_heads)


def check_carried(op: Any) -> None:
    """Refuse the gradient of a call with a carried state, and the dtype of a state that is not carried.

    Raises
    ------
    UsageError
        ``carried`` and ``backward`` at once, and a ``state_dtype`` other than fp32 without ``carried``.
    """
    if op.state_dtype != "fp32" and not op.carried:
        raise UsageError(
            f"state_dtype={op.state_dtype} is that of a carried state, and carried=false.", place=op.op,
            remedy="Give carried=true, or leave state_dtype out.",
        )  # fmt: skip
    if op.carried and op.backward:
        raise UsageError(
            "carried=true has no backward pass here.", place=op.op, remedy="Leave out carried, or backward."
        )


def carried_states(op: Any, *shape: Number) -> tuple[tuple[Tensor, ...], tuple[Tensor, ...]]:
    """Return the first state, which is read, and the last, which is written [batch, ...shape], if any."""
    if not op.carried:
        return (), ()
    state = (op.batch, *shape)
    return (Tensor.input("state", state, op.state_dtype),), (Tensor.output("last_state", state, op.state_dtype),)
