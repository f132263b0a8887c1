"""Matrices of weights, by their shapes."""

from __future__ import annotations

from typing import NamedTuple


class Linear(NamedTuple):
    """A matrix of weights [n, k], applied to every token: y[n] = W x[k] + bias."""

    name: str
    n: int
    k: int
    bias: bool = False

    @property
    def parameters(self) -> int:
        """Weights and biases."""
        return self.n * self.k + self.n * self.bias


def count_parameters(linears: tuple[Linear, ...]) -> int:
    """Return the parameters of some matrices."""
    return sum(linear.parameters for linear in linears)
