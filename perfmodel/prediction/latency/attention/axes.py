"""The sizes over which residual surfaces correct attention."""

from __future__ import annotations

from perfmodel.core.work import Number, minimum, where
from perfmodel.operators.attention import Attention
from perfmodel.prediction.latency.family import Axis
from perfmodel.prediction.latency.machine import Machine


def _heads(op: Attention, machine: Machine) -> Number:
    return 1.0 * op.batch * op.heads


def _out_of_window(op: Attention, machine: Machine) -> Number:
    """Return the keys over those that a query attends to: 1 without a window."""
    return op.seq_kv / minimum(where(op.window > 0, op.window, op.seq_kv), op.seq_kv)


#: residuals of prompts vary with what fills the SMs, and with what the libraries' kernels are built for
PREFILL_AXES = (
    Axis("seq_q", lambda op, machine: op.seq_q, step=1.5, length=3.0),
    Axis("heads", _heads, step=2.0),
    Axis("window", _out_of_window, step=3.5),
    Axis("head_dim", lambda op, machine: op.head_dim, step=1.0, length=2.0),
)
