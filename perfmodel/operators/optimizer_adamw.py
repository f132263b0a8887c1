"""The step of AdamW, under a name of its own."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from perfmodel.errors import UsageError
from perfmodel.operators.optimizer import Optimizer


@dataclass(frozen=True, kw_only=True, eq=False)
class OptimizerAdamw(Optimizer):
    """`Optimizer` with ``kind="adamw"``: the same dimensions and counts, 15 P FLOP and 28 P bytes in fp32.

    Parameters
    ----------
    parameters, algorithm, num_tensors, master, state_dtype : as in `Optimizer`.
    """

    op: ClassVar[str] = "optimizer_adamw"

    def check(self) -> None:
        """Refuse other kinds, then check as `Optimizer`."""
        if self.kind != "adamw":
            raise UsageError(f"kind={self.kind} is not AdamW.", place=self.op, remedy="Use the operator optimizer.")
        super().check()
