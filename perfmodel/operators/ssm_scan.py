"""The selective scan of a state-space model, as Mamba runs it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from perfmodel.core.work import Number, Tensor
from perfmodel.operators.base import Operator, flag, size


@dataclass(frozen=True, kw_only=True, eq=False)
class SsmScan(Operator):
    """h[t] = exp(dt[t] A) h[t - 1] + dt[t] x[t] B[t]; y[t] = C[t] h[t] + D x[t] (Gu and Dao 2023, arXiv 2312.00752).

    Every channel has a state of N numbers. FLOP = 7 for each channel, state and token: dt A, its exponential, the
    product with B, and two fused multiply-adds (state and output); 3 for each channel and token: dt x, and D x added.
    One kernel keeps the states in registers: it reads x, dt, B and C and writes y, 3 T D + 2 T N elements a sequence,
    and reads A and D in fp32. Backward computes the states again and forms two gradients for each product: 3 times the
    FLOP; it also reads dy and writes the gradients of x, dt, B and C.

    Parameters
    ----------
    batch, seq : sequences, and tokens T of a sequence.
    channels, state : channels D, and numbers N of the state of each.
    backward : the gradient.
    """

    op: ClassVar[str] = "ssm_scan"

    batch: Number = size(1, doc="sequences")
    seq: Number = size(doc="tokens of a sequence")
    channels: Number = size(doc="channels")
    state: Number = size(16, doc="numbers of the state of a channel")
    backward: bool = flag(False, quiet=True, doc="the gradient")

    def flop(self) -> Number:
        """Return batch seq channels (7 state + 3), backward 3 times that [FLOP]."""
        each = 7.0 * self.state + 3.0
        return (3.0 if self.backward else 1.0) * self.batch * self.seq * self.channels * each

    def tensors(self) -> tuple[Tensor, ...]:
        """Return x, dt, B, C, A, D and y; backward dy and the gradients of x, dt, B and C in place of y."""
        wide, narrow = (self.batch, self.seq, self.channels), (self.batch, self.seq, self.state)
        inputs = (
            Tensor.input("x", wide, self.dtype),
            Tensor.input("dt", wide, self.dtype),
            Tensor.input("b", narrow, self.dtype),
            Tensor.input("c", narrow, self.dtype),
            Tensor.input("a", (self.channels, self.state), "fp32"),
            Tensor.input("d", (self.channels,), "fp32"),
        )
        if not self.backward:
            return (*inputs, Tensor.output("y", wide, self.dtype))
        return (
            *inputs,
            Tensor.input("dy", wide, self.dtype),
            Tensor.output("dx", wide, self.dtype),
            Tensor.output("ddt", wide, self.dtype),
            Tensor.output("db", narrow, self.dtype),
            Tensor.output("dc", narrow, self.dtype),
        )
