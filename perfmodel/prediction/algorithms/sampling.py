"""Sampling a token: multinomial, Gumbel-max as operators and fused, top-k and top-p."""

from __future__ import annotations

from perfmodel.core.dtypes import dtype_bytes
from perfmodel.core.hardware import Hardware
from perfmodel.operators.sampling import ALGORITHMS, Sampling
from perfmodel.prediction.algorithms.base import Cost, Problem, predicted

#: algorithms that draw from one distribution
_SAME = (("multinomial", "gumbel", "gumbel_fused"), ("top_k",), ("top_p", "top_p_pivot"))


def costs(op: Sampling, hardware: Hardware) -> list[Cost]:
    """Return what each algorithm takes; those that draw from another distribution than the operator's do not apply."""
    same = next(group for group in _SAME if op.algorithm in group)
    return [_cost(op, name, same, hardware) for name in ALGORITHMS]


def _cost(op: Sampling, name: str, same: tuple[str, ...], hardware: Hardware) -> Cost:
    if name == "top_k" and op.k > op.vocab:
        return Cost(name, why_not="k is above vocab")
    one = op.changed(algorithm=name)
    why_not = "" if name in same else f"draws from another distribution than {op.algorithm}"
    rows = {"multinomial": 3.0, "gumbel": 2.0, "top_p": 4.0}.get(name, 0.0) * float(op.rows * op.vocab)
    return predicted(name, one, hardware, kernels=float(one.kernels()), workspace_bytes=rows * dtype_bytes(op.dtype),
                     why_not=why_not)  # fmt: skip


PROBLEM = Problem(
    "sampling",
    op="sampling",
    size="vocab",
    sizes=(64.0, 2.0**20),
    costs=costs,
    defaults={"rows": 64, "vocab": 128256},
    note="Kernels alone: called one by one from Python, the host decides where these times are below its dispatch.",
)
