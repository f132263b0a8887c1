"""An operator list as it grows: the kernels that a layer of PyTorch runs, added one after the other."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from perfmodel.errors import unknown_name
from perfmodel.operators.base import Operator
from perfmodel.operators.elementwise import KINDS, Elementwise
from perfmodel.operators.gemm import Gemm
from perfmodel.operators.layer_norm import LayerNorm
from perfmodel.operators.reduction import Reduction
from perfmodel.operators.transpose import Transpose
from perfmodel.workloads.config import Linear, ModelConfig

#: ends the names of elementwise kernels that find each element of an input by its own address, because the input is
#: repeated along an axis, or permuted
BROADCAST = "_broadcast"
#: tanh-GELU as Hugging Face writes it out: 0.5 x (1 + tanh(0.79788 (x + 0.044715 x^3))), as (kind, tensors read). Torch
#: multiplies for powers of 2 and 3, so that they run like "square", not like "pow".
_GELU_NEW = (("mul", 1), ("square", 1), ("mul", 1), ("add", 2), ("mul", 1), ("tanh", 1), ("add", 1), ("mul", 2))
#: activations that torch runs as one kernel, by their names in configurations
_ACTIVATIONS = {"gelu_pytorch_tanh": "gelu", "gelu_fast": "gelu", "swish": "silu"}


def computes_addresses(op: Operator) -> bool:
    """Return whether a kernel finds each element by its own address: copies between layouts, and broadcasts.

    Such kernels read one element at a time, in place of four, and divide to find it.
    """
    return op.op == "transpose" or op.name.endswith(BROADCAST)


@dataclass
class Pass:
    """The operators of a forward pass as they are added.

    ``prefix`` and ``count`` are those of the operators that are added next.
    """

    config: ModelConfig
    batch: int
    seq: int
    dtype: str
    prefix: str = ""
    count: int = 1
    made: list[Operator] = field(default_factory=list)

    @property
    def tokens(self) -> int:
        return self.batch * self.seq

    @property
    def hidden(self) -> int:
        """Elements of the hidden state."""
        return self.tokens * self.config.hidden

    def put(self, operator: type[Operator], name: str, **sizes: Any) -> None:
        """Add one operator, in the model's dtype unless told another."""
        self.made.append(operator(name=self.prefix + name, count=self.count, **{"dtype": self.dtype, **sizes}))

    def each(self, name: str, kind: str, numel: int, inputs: int | None = None, **dtypes: str) -> None:
        """Add one elementwise kernel; inputs of one element, or one row, are not counted as tensors read."""
        self.put(Elementwise, name, kind=kind, numel=numel, num_inputs=inputs, **dtypes)

    def broadcast(self, name: str, kind: str, numel: int, inputs: int | None = None, **dtypes: str) -> None:
        """Add one elementwise kernel with an input that is repeated or permuted."""
        self.each(name + BROADCAST, kind, numel, inputs, **dtypes)

    def linear(self, where: str, linear: Linear, rows: int | None = None) -> None:
        self.put(Gemm, where + linear.name, m=rows or self.tokens, n=linear.n, k=linear.k, bias=linear.bias)

    def norm(self, name: str, rows: int | None = None, cols: int | None = None) -> None:
        rows, cols = rows or self.tokens, cols or self.config.hidden
        if self.config.architecture.rms_norm:
            self._rms_norm(name, rows, cols)
        else:
            self.put(LayerNorm, name, rows=rows, cols=cols)

    def _rms_norm(self, name: str, rows: int, cols: int) -> None:
        """Add weight (x / sqrt(mean x^2 + eps)) as Hugging Face writes it out: in fp32, with casts around it."""
        numel = rows * cols
        if self.dtype != "fp32":
            self.each(f"{name}.to_fp32", "cast", numel, out_dtype="fp32")
        self.each(f"{name}.1_square", "square", numel, dtype="fp32")
        self.put(Reduction, f"{name}.2_mean", rows=rows, cols=cols, dtype="fp32")
        self.each(f"{name}.3_eps", "add", rows, 1, dtype="fp32")
        self.each(f"{name}.4_rsqrt", "rsqrt", rows, dtype="fp32")
        self.broadcast(f"{name}.5_scale", "mul", numel, 1, dtype="fp32")
        if self.dtype != "fp32":
            self.each(f"{name}.from_fp32", "cast", numel, dtype="fp32", out_dtype=self.dtype)
        self.broadcast(f"{name}.6_weight", "mul", numel, 1)

    def regroup(self, name: str, heads: int, repeats: int = 1) -> None:
        """Add the copy that swaps the axes of tokens and heads of each sequence, every head ``repeats`` times.

        The elements of a head stay together, so that it moves whole rows of ``head_dim``.
        """
        self.put(Transpose, name, batch=self.batch, rows=self.seq, cols=heads * repeats * self.config.head_dim)

    def activation(self, name: str, numel: int) -> None:
        kind = self.config.activation
        if kind == "gelu_new":
            for step, (part, inputs) in enumerate(_GELU_NEW, start=1):
                self.each(f"{name}.{step}_{part}", part, numel, inputs)
            return
        known = _ACTIVATIONS.get(kind, kind)
        if known not in KINDS:
            raise unknown_name("activation", kind, ("gelu_new", *_ACTIVATIONS, *KINDS))
        self.each(name, known, numel)
