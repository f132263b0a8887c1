"""Which kernels a library of some release runs one after another for an operator, and whose they are."""

from __future__ import annotations

from dataclasses import replace

from perfmodel.operators.base import Operator
from perfmodel.operators.cross_entropy import CrossEntropy
from perfmodel.operators.linear_cross_entropy import LinearCrossEntropy
from perfmodel.prediction.conditions import Conditions

LIGER = "liger"
#: Liger-Kernel's releases whose linear cross entropy adds up the weights' gradients in passes of their own
#: (``grad_weight += torch.mm(...).float()`` in src/liger_kernel/ops/fused_linear_cross_entropy.py): until its pull
#: request 1454, which the notes of 0.8.3 name; since 830, of July 2025, whose release is taken to be 0.6.2. Six calls
#: on a B200 take 1.01 to 1.04 times the predicted time with them, and 2.2 to 4.9 times without (Liger-Kernel's pull
#: request 1339 in `examples/published`, in view)
APART_SINCE, APART_UNTIL = (0, 6, 2), (0, 8, 3)
#: the last of them
LAST_APART = "0.8.2"


def parts_of(op: Operator, conditions: Conditions) -> tuple[Operator, ...]:
    """Return the operators that a library runs one after another, where it has no kernel for an operator."""
    if isinstance(op, LinearCrossEntropy) and _accumulates(op, conditions):
        return op.composition(apart=conditions.is_before(*APART_UNTIL) and not conditions.is_before(*APART_SINCE))
    return op.composition_in(conditions.library)


def other_release(op: Operator, conditions: Conditions) -> str:
    """Return a release that runs other kernels than that of today, for a call that names none; "" where none does."""
    return LAST_APART if not conditions.version and _accumulates(op, conditions) else ""


def conditions_of(part: Operator, conditions: Conditions) -> Conditions:
    """Return the conditions of a part: all of Liger-Kernel's but the loss are PyTorch's calls."""
    if conditions.library != LIGER or isinstance(part, CrossEntropy):
        return conditions
    return replace(conditions, library="torch", version="")


def _accumulates(op: Operator, conditions: Conditions) -> bool:
    return isinstance(op, LinearCrossEntropy) and op.gradients and conditions.library == LIGER
