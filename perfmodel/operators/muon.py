"""One step of Muon: momentum, and its matrix made orthogonal by Newton and Schulz's iteration."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from perfmodel.core.work import Number, Tensor, maximum, minimum
from perfmodel.operators.base import Operator, dtype_of, size
from perfmodel.operators.elementwise import Elementwise
from perfmodel.operators.gemm import Gemm

#: iterations of Newton and Schulz (Jordan et al. 2024, "Muon: An optimizer for hidden layers in neural networks")
STEPS = 5


@dataclass(frozen=True, kw_only=True, eq=False)
class Muon(Operator):
    """w -= lr orthogonal(momentum(g)) for ``matrices`` weights of ``rows`` x ``cols``.

    With r the shorter side and c the longer one, each of 5 iterations X <- a X + (b A + c A^2) X, A = X X^T, takes
    three products: 4 r^2 c + 2 r^3 FLOP, and 3 r^2 + 2 r c of scaling and sums. Momentum and step add 4 r c. Traffic:
    gradient, momentum and weights as for SGD (5 r c of their dtypes); each iteration reads X twice and writes it, and
    reads and writes A and its polynomial: 3 r c + 5 r^2 elements in ``dtype``.

    Parameters
    ----------
    rows, cols : sizes of a matrix.
    matrices : number of such matrices.
    dtype : dtype of the products.
    state_dtype : dtype of weights, gradient and momentum.
    """

    op: ClassVar[str] = "muon"
    preferred_engine: ClassVar[str] = "tensor"

    dtype: str = dtype_of("bf16", doc="dtype of the products")
    rows: Number = size(doc="rows of a matrix")
    cols: Number = size(doc="columns of a matrix")
    matrices: Number = size(1, doc="number of such matrices")
    state_dtype: str = dtype_of("fp32", doc="dtype of weights, gradient and momentum")

    @property
    def _sides(self) -> tuple[Number, Number]:
        """The shorter and the longer side of a matrix."""
        return minimum(1.0 * self.rows, 1.0 * self.cols), maximum(1.0 * self.rows, 1.0 * self.cols)

    def flop(self) -> Number:
        """Return matrices (5 (4 r^2 c + 2 r^3 + 3 r^2 + 2 r c) + 4 r c) [FLOP]."""
        short, long = self._sides
        products = 4.0 * short**2 * long + 2.0 * short**3 + 3.0 * short**2 + 2.0 * short * long
        return self.matrices * (STEPS * products + 4.0 * short * long)

    def tensors(self) -> tuple[Tensor, ...]:
        """Return gradient, weights and momentum, and X and A of every iteration."""
        short, long = self._sides
        whole = (self.matrices, self.rows, self.cols)
        return (
            Tensor.input("gradient", whole, self.state_dtype),
            Tensor.intermediate("weights", whole, self.state_dtype),
            Tensor.intermediate("momentum", whole, self.state_dtype),
            Tensor("x", (self.matrices, short, long), self.dtype, reads=2.0 * STEPS, writes=1.0 * STEPS),
            Tensor("a", (self.matrices, short, short), self.dtype, reads=3.0 * STEPS, writes=2.0 * STEPS),
        )

    def composition(self) -> tuple[Operator, ...]:
        """Return momentum and step, and the three products of each iteration."""
        short, long = self._sides
        numel = 1.0 * self.matrices * self.rows * self.cols
        return (
            Elementwise(numel=numel, kind="add", dtype=self.state_dtype, count=2, name="momentum and step"),
            self._product("x x^T", short, short, long),
            self._product("a a", short, short, short),
            self._product("polynomial x", short, long, short),
        )

    def _product(self, name: str, m: Number, n: Number, k: Number) -> Gemm:
        return Gemm(batch=self.matrices, m=m, n=n, k=k, dtype=self.dtype, count=STEPS, name=name)

    def buffers(self) -> tuple[Tensor, ...]:
        """Return the gradient, the weights and the momentum, and the updated weights."""
        whole = (self.matrices, self.rows, self.cols)
        inputs = (Tensor.input(name, whole, self.state_dtype) for name in ("gradient", "weights", "momentum"))
        return (*inputs, Tensor.output("updated", whole, self.state_dtype))
