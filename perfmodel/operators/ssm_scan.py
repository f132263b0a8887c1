"""The selective scan of a state-space model, as Mamba runs it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from perfmodel.core.work import Number, Tensor
from perfmodel.operators.base import Operator, dtype_of, flag, size
from perfmodel.operators.states import carried_states, check_carried


@dataclass(frozen=True, kw_only=True, eq=False)
class SsmScan(Operator):
    """h[t] = exp(dt[t] A) h[t - 1] + dt[t] x[t] B[t]; y[t] = C[t] h[t] + D x[t] (Gu and Dao 2023, arXiv 2312.00752).

    Every channel has a state of N numbers. FLOP = 7 for each channel, state and token: dt A, its exponential, the
    product with B, and two fused multiply-adds (state and output); 3 for each channel and token: dt x, and D x added.
    One kernel keeps the states in registers: it reads x, dt, B and C and writes y, 3 T D + 2 T N elements a sequence,
    and reads A and D in fp32. Backward computes the states again and forms two gradients for each product: 3 times the
    FLOP; it also reads dy and writes the gradients of x, dt, B and C.

    With a gate the kernel multiplies y by silu(z), 5 FLOP for each channel and token more, and reads z; backward also
    writes its gradient. A server's step carries the states: they are read and written, D N numbers of a sequence each
    way.

    Parameters
    ----------
    batch, seq : sequences, and tokens T of a sequence.
    channels, state : channels D, and numbers N of the state of each.
    carried : read first states and write the last ones, as a server does between its steps. Without it the states start
        at zero and are dropped. The backward pass has none.
    state_dtype : of carried states, by default fp32.
    gated : y[t] is multiplied by silu(z[t]).
    backward : the gradient.

    Raises
    ------
    UsageError
        ``carried`` and ``backward`` at once.
    """

    op: ClassVar[str] = "ssm_scan"

    batch: Number = size(1, doc="sequences")
    seq: Number = size(doc="tokens of a sequence")
    channels: Number = size(doc="channels")
    state: Number = size(16, doc="numbers of the state of a channel")
    carried: bool = flag(False, quiet=True, doc="read first states and write the last ones")
    state_dtype: str = dtype_of(doc="dtype of carried states; default fp32")
    gated: bool = flag(False, quiet=True, doc="multiply y by silu(z)")
    backward: bool = flag(False, quiet=True, doc="the gradient")

    def check(self) -> None:
        """Derive the dtype of the states; check that no gradient is carried."""
        self.derive(state_dtype="fp32")
        check_carried(self)

    def flop(self) -> Number:
        """Return batch seq channels (7 state + 3 [+ 5]), backward 3 times that [FLOP]."""
        each = 7.0 * self.state + 3.0 + 5.0 * self.gated
        return (3.0 if self.backward else 1.0) * self.batch * self.seq * self.channels * each

    def kernels(self) -> Number:
        """Return 1: one kernel steps through the tokens with the states of its channels on the chip."""
        return 1.0

    def tensors(self) -> tuple[Tensor, ...]:
        """Return x, dt, B, C, A, D, a gate, y and carried states; backward dy and gradients in place of y."""
        wide, narrow = (self.batch, self.seq, self.channels), (self.batch, self.seq, self.state)
        gates = (Tensor.input("z", wide, self.dtype),) if self.gated else ()
        inputs = (
            Tensor.input("x", wide, self.dtype),
            Tensor.input("dt", wide, self.dtype),
            Tensor.input("b", narrow, self.dtype),
            Tensor.input("c", narrow, self.dtype),
            Tensor.input("a", (self.channels, self.state), "fp32"),
            Tensor.input("d", (self.channels,), "fp32"),
            *gates,
        )
        if not self.backward:
            before, after = carried_states(self, self.channels, self.state)
            return (*inputs, *before, Tensor.output("y", wide, self.dtype), *after)
        return (
            *inputs,
            Tensor.input("dy", wide, self.dtype),
            Tensor.output("dx", wide, self.dtype),
            Tensor.output("ddt", wide, self.dtype),
            Tensor.output("db", narrow, self.dtype),
            Tensor.output("dc", narrow, self.dtype),
            *(Tensor.output(f"d{gate.name}", wide, self.dtype) for gate in gates),
        )
