"""The step of an optimizer that treats each weight alone: AdamW, SGD, 8-bit Adam."""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType
from typing import ClassVar

import numpy as np

from perfmodel.core.work import Number, Tensor, plain
from perfmodel.errors import UsageError
from perfmodel.operators.base import Operator, choice, dtype_of, flag, size

#: the passes of PyTorch's foreach and loop implementations, each with the tensors that it reads; it writes one. AdamW:
#: decay of the weights, both moments, root, correction, epsilon, step (torch/optim/adamw.py)
PASSES = MappingProxyType(
    {
        "adamw": (
            ("mul", 1),
            ("lerp", 2),
            ("mul", 1),
            ("addcmul", 2),
            ("sqrt", 1),
            ("div", 1),
            ("add", 1),
            ("addcdiv", 3),
        ),
        "momentum": (("mul", 1), ("add", 2), ("add", 2)),
        "sgd": (("add", 2),),
    }
)
#: tensors that one kernel takes with four lists (weights, gradients, two moments) or two, and elements of all its
#: blocks: depth_to_max_tensors, 320 blocks of 65,536 elements (PyTorch, aten/src/ATen/native/cuda/MultiTensorApply.cuh)
TENSORS_OF_FOUR_LISTS, TENSORS_OF_TWO_LISTS = 36, 64
ELEMENTS_OF_A_KERNEL = 320 * 65536
#: weights that share a scale of their 8-bit moments (Dettmers et al. 2021, arXiv 2110.02861, "block size of 2048")
BLOCK = 2048


@dataclass(frozen=True, kw_only=True, eq=False)
class Optimizer(Operator):
    """One step of an optimizer over ``parameters`` weights P.

    - adamw (Loshchilov and Hutter 2019, arXiv 1711.05101): 15 P FLOP: decay (1), both moments (2 + 4), corrections (2),
      root (1), epsilon (1), quotient (1), step (3). Fused, it reads weight, gradient and both moments and writes
      weight and moments: 7 P s bytes, 28 P in fp32, 14 P with all in bf16. With ``master`` weights in fp32 beside
      16-bit ones it reads gradient, master and moments, and writes master, moments and weights: also 28 P. As
      "foreach" or "loop" it is 8 passes over memory (`PASSES`), 20 P s: 80 P in fp32.
    - sgd: 2 P FLOP and 3 P s bytes; with momentum 4 P and 5 P s, in three passes 8 P s.
    - adam8bit: both moments in 8 bits with a scale for each block of 2048 weights: 3 P s + 4 P + 16 P / 2048 bytes;
      19 P FLOP, two products to scale the moments each way.

    Parameters
    ----------
    parameters : weights.
    kind : "adamw", "sgd" or "adam8bit".
    algorithm : "fused" (one kernel for many tensors), "foreach" (a kernel a pass for many tensors) or "loop" (a kernel
        a pass and tensor); adam8bit is fused.
    num_tensors : tensors that the weights are in; it sets the number of kernels.
    momentum : of sgd.
    master : the weights in ``dtype`` are copies of a master in ``state_dtype``; gradients have ``dtype``.
    state_dtype : dtype of the moments, by default ``dtype``, or fp32 with a master.
    """

    op: ClassVar[str] = "optimizer"

    parameters: Number = size(doc="weights")
    kind: str = choice("adamw", ("adamw", "sgd", "adam8bit"), always_shown=True, doc="the rule of the step")
    algorithm: str = choice("fused", ("fused", "foreach", "loop"), doc="one pass over memory, or several")
    num_tensors: Number = size(1, doc="tensors that the weights are in")
    momentum: bool = flag(True, quiet=True, doc="sgd has momentum")
    master: bool = flag(False, doc="fp32 master weights beside those in dtype")
    state_dtype: str = dtype_of(doc="dtype of moments and master; default dtype, or fp32 with a master")

    def check(self) -> None:
        """Derive the dtype of the moments; refuse algorithms that do not exist."""
        self.derive(state_dtype="fp32" if self.master else self.dtype)
        if self.algorithm != "fused" and (self.kind == "adam8bit" or self.master):
            what = "adam8bit" if self.kind == "adam8bit" else "a step with master weights"
            raise UsageError(f"algorithm={self.algorithm} does not exist for {what}.", place=self.op, remedy="fused.")

    @property
    def passes(self) -> tuple[tuple[str, int], ...]:
        """The passes over memory of foreach and loop: name, tensors read."""
        return PASSES["momentum" if self.kind == "sgd" and self.momentum else self.kind]

    def kernels(self) -> Number:
        """Return the kernels of one step."""
        if self.algorithm == "loop":
            return 1.0 * len(self.passes) * self.num_tensors
        fused = self.algorithm == "fused"
        by_tensors = np.asarray(self.num_tensors / (TENSORS_OF_FOUR_LISTS if fused else TENSORS_OF_TWO_LISTS))
        one_pass = np.ceil(np.maximum(by_tensors, self.parameters / ELEMENTS_OF_A_KERNEL))
        return plain((1.0 if fused else len(self.passes)) * one_pass)

    def calls(self) -> Number:
        """Return the calls of a framework: one for each pass over all tensors, as a loop for each of them too."""
        if self.algorithm == "fused":
            return 1.0
        return len(self.passes) * (1.0 * self.num_tensors if self.algorithm == "loop" else 1.0)

    def flop(self) -> Number:
        """Return 15 (adamw), 19 (adam8bit), 4 or 2 (sgd) a weight [FLOP]."""
        each = {"adamw": 15.0, "adam8bit": 19.0, "sgd": 4.0 if self.momentum else 2.0}[self.kind]
        return each * self.parameters

    def tensors(self) -> tuple[Tensor, ...]:
        """Return the gradient, the weights and the state of one step; several passes read and write them again."""
        size = (self.parameters,)
        gradient = Tensor.input("gradient", size, self.dtype)
        weights = Tensor.intermediate("weights", size, self.state_dtype if self.master else self.dtype)
        copies = (Tensor.output("copies", size, self.dtype),) if self.master else ()
        if self.kind == "adam8bit":
            scales = Tensor.intermediate("scales", (2, self.parameters / BLOCK), "fp32")
            return (gradient, weights, Tensor.intermediate("moments", (2, *size), "int8"), scales, *copies)
        moments = {"adamw": 2, "sgd": 1 if self.momentum else 0}[self.kind]
        state = (Tensor.intermediate("moments", (moments, *size), self.state_dtype),) if moments else ()
        if self.algorithm == "fused" or not moments:
            return (gradient, weights, *state, *copies)
        # what the passes read and write beyond the least
        reads = sum(count for _, count in self.passes) - (2.0 + moments)
        again = Tensor("passes", size, self.state_dtype, reads=reads, writes=len(self.passes) - (1.0 + moments))
        return (gradient, weights, *state, again)

    def buffers(self) -> tuple[Tensor, ...]:
        """Return the gradient, the weights and each moment, and the updated weights."""
        size = (self.parameters,)
        names = {"adamw": ("exp_avg", "exp_avg_sq"), "sgd": ("momentum",) if self.momentum else ()}.get(self.kind, ())
        return (
            Tensor.input("gradient", size, self.dtype),
            Tensor.input("weights", size, self.state_dtype if self.master else self.dtype),
            *(Tensor.input(name, size, self.state_dtype) for name in names),
            Tensor.output("updated", size, self.dtype),
        )
