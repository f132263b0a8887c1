"""Sampling a token: multinomial, Gumbel-max as operators and fused, top-k and top-p."""

from __future__ import annotations

from perfmodel.core.dtypes import dtype_bytes
from perfmodel.core.hardware import Hardware
from perfmodel.operators.sampling import ALGORITHMS, Sampling
from perfmodel.prediction.algorithms.base import Cost, Problem, Rates, counted, predicted
from perfmodel.prediction.latency.host import CALL_S, arithmetic_s

#: algorithms that draw from one distribution
_SAME = (("multinomial", "gumbel", "gumbel_fused"), ("top_k",), ("top_p", "top_p_pivot"))


def costs(op: Sampling, hardware: Hardware) -> list[Cost]:
    """Return what each algorithm takes; those that draw from another distribution than the operator's do not apply."""
    if hardware.kind == "cpu":
        return _on_cpu(op, hardware)
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


def _on_cpu(op: Sampling, hardware: Hardware) -> list[Cost]:
    """Return torch's operators on a CPU, where drawing the random numbers takes longer than their passes."""
    rates = Rates.for_op(op, hardware)
    same = next(group for group in _SAME if op.algorithm in group)
    costs = []
    for name in _ON_CPU:
        one = op.changed(algorithm=name, k=min(op.k, op.vocab))
        work = one.work()
        moved = float(work.bytes - work.repeated_bytes)
        time_s = one.kernels() * CALL_S + arithmetic_s(one) + moved / rates.bytes_per_s
        why_not = "" if name in same else f"draws from another distribution than {op.algorithm}"
        costs.append(
            counted(name, float(time_s), flop=float(one.flop()), moved_bytes=moved, kernels=float(one.kernels()),
                    why_not=why_not, basis="random numbers and passes, on one core")
        )  # fmt: skip
    return [*costs, *(Cost(name, why_not="no library has it on a CPU") for name in ALGORITHMS if name not in _ON_CPU)]


_ON_CPU = ("multinomial", "gumbel", "top_k", "top_p")

PROBLEM = Problem(
    "sampling",
    op="sampling",
    size="vocab",
    sizes=(64.0, 2.0**20),
    costs=costs,
    defaults={"rows": 64, "vocab": 128256},
    note="Kernels alone: called one by one from Python, the host decides where these times are below its dispatch.",
)
