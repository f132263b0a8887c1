"""The step of an optimizer: fused in one pass, pass by pass over many tensors (foreach), or tensor by tensor (loop)."""

from __future__ import annotations

from perfmodel.core.dtypes import dtype_bytes
from perfmodel.core.hardware import Hardware
from perfmodel.errors import UsageError
from perfmodel.operators.optimizer import Optimizer
from perfmodel.prediction.algorithms.base import Cost, Problem, predicted

#: tensors that foreach keeps beside the state while it works: the roots of the second moments
FOREACH_TENSORS = 1.0


def costs(op: Optimizer, hardware: Hardware) -> list[Cost]:
    """Return what each implementation takes for a step."""
    return [_cost(name, op, hardware) for name in ("fused", "foreach", "loop")]


def _cost(name: str, op: Optimizer, hardware: Hardware) -> Cost:
    try:
        one = op.changed(algorithm=name)
    except UsageError as error:
        return Cost(name, why_not=error.message.rstrip("."))
    kept = FOREACH_TENSORS * float(op.parameters) * dtype_bytes(op.state_dtype)
    workspace = {"foreach": kept, "loop": kept / float(op.num_tensors)}.get(name, 0.0)
    return predicted(name, one, hardware, kernels=float(one.kernels()), workspace_bytes=workspace)


PROBLEM = Problem(
    "optimizer",
    op="optimizer",
    size="parameters",
    sizes=(2.0**16, 2.0**34),
    costs=costs,
    defaults={"parameters": 2**27, "num_tensors": 148},
)
