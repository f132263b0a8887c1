"""Building the list of operators of a model: methods that add the kernels which a PyTorch layer runs."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from perfmodel.errors import unknown_name
from perfmodel.operators.base import Operator
from perfmodel.operators.elementwise import KINDS, Elementwise
from perfmodel.operators.gemm import Gemm
from perfmodel.operators.layer_norm import LayerNorm
from perfmodel.operators.reduction import Reduction

if TYPE_CHECKING:
    from perfmodel.workloads.matrices import Linear
    from perfmodel.workloads.model_config import ModelConfig

#: suffix of the names of elementwise kernels with an input that is repeated along an axis, or permuted
BROADCAST = "_broadcast"
#: tanh-GELU as Hugging Face spells it out: 0.5 x (1 + tanh(0.79788 (x + 0.044715 x^3))), as (kind, tensors read). Torch
#: computes powers of 2 and 3 by multiplication, so that they run like "square", not like "pow".
_GELU_NEW = (("mul", 1), ("square", 1), ("mul", 1), ("add", 2), ("mul", 1), ("tanh", 1), ("add", 1), ("mul", 2))
#: activations that torch runs as one kernel: name in configurations -> kind
_ACTIVATIONS = {"gelu_pytorch_tanh": "gelu", "gelu_fast": "gelu", "swish": "silu"}


@dataclass
class OperatorList:
    """The operators of one pass through a model, in the order in which they are added.

    Attributes
    ----------
    config : the shapes of the model.
    batch, seq, dtype : sequences, tokens of each, and the dtype of weights and activations.
    prefix, count : put before the name of the operators added next, and how often these run.
    operators : the list so far.
    """

    config: ModelConfig
    batch: int
    seq: int
    dtype: str
    prefix: str = ""
    count: int = 1
    operators: list[Operator] = field(default_factory=list)

    @property
    def tokens(self) -> int:
        """Tokens of the batch."""
        return self.batch * self.seq

    @property
    def hidden(self) -> int:
        """Elements of the hidden state."""
        return self.tokens * self.config.hidden

    def add(self, operator: type[Operator], name: str, **sizes: Any) -> None:
        """Add one operator, in the model's dtype by default."""
        self.operators.append(operator(name=self.prefix + name, count=self.count, **{"dtype": self.dtype, **sizes}))

    def elementwise(self, name: str, kind: str, numel: int, inputs: int | None = None, **facts: Any) -> None:
        """Add one elementwise kernel; ``inputs`` does not count tensors of one element or one row."""
        self.add(Elementwise, name, kind=kind, numel=numel, num_inputs=inputs, **facts)

    def broadcast(self, name: str, kind: str, numel: int, inputs: int | None = None, **dtypes: str) -> None:
        """Add one elementwise kernel with an input that is repeated or permuted."""
        self.elementwise(name + BROADCAST, kind, numel, inputs, strided=True, **dtypes)

    def linear(self, prefix: str, linear: Linear, rows: int | None = None) -> None:
        """Add the product with a matrix of weights, for all tokens or some rows."""
        self.add(Gemm, prefix + linear.name, m=rows or self.tokens, n=linear.n, k=linear.k, bias=linear.bias)

    def norm(self, name: str, rows: int | None = None, cols: int | None = None) -> None:
        """Add the model's kind of norm, by default over the hidden state of each token."""
        rows, cols = rows or self.tokens, cols or self.config.hidden
        if self.config.architecture.rms_norm:
            self._rms_norm(name, rows, cols)
        else:
            self.add(LayerNorm, name, rows=rows, cols=cols)

    def _rms_norm(self, name: str, rows: int, cols: int) -> None:
        """Add weight (x / sqrt(mean x^2 + eps)) as Hugging Face spells it out: in fp32, with casts around it."""
        numel = rows * cols
        if self.dtype != "fp32":
            self.elementwise(f"{name}.to_fp32", "cast", numel, out_dtype="fp32")
        self.elementwise(f"{name}.1_square", "square", numel, dtype="fp32")
        self.add(Reduction, f"{name}.2_mean", rows=rows, cols=cols, dtype="fp32")
        self.elementwise(f"{name}.3_eps", "add", rows, 1, dtype="fp32")
        self.elementwise(f"{name}.4_rsqrt", "rsqrt", rows, dtype="fp32")
        self.broadcast(f"{name}.5_scale", "mul", numel, 1, dtype="fp32")
        if self.dtype != "fp32":
            self.elementwise(f"{name}.from_fp32", "cast", numel, dtype="fp32", out_dtype=self.dtype)
        self.broadcast(f"{name}.6_weight", "mul", numel, 1)

    def swap_heads(self, name: str, heads: int, repeats: int = 1) -> None:
        """Add the copy that swaps the axes of tokens and heads of each sequence, and repeats each head.

        The elements of a head stay together, so that neighbouring ones are read together, as a `Transpose` does not.
        """
        self.elementwise(name, "copy", self.tokens * heads * repeats * self.config.head_dim, strided=True)

    def activation(self, name: str, numel: int) -> None:
        """Add the model's activation."""
        kind = self.config.activation
        if kind == "gelu_new":
            for step, (part, inputs) in enumerate(_GELU_NEW, start=1):
                self.elementwise(f"{name}.{step}_{part}", part, numel, inputs)
            return
        fused = _ACTIVATIONS.get(kind, kind)
        if fused not in KINDS:
            raise unknown_name("activation", kind, ("gelu_new", *_ACTIVATIONS, *KINDS))
        self.elementwise(name, fused, numel)
