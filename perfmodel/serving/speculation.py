"""Speculative decoding: a draft proposes some tokens, one step of the model verifies them.

A draft model has keys and values of its own, so that it reads each prompt, too.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from perfmodel.errors import UsageError
from perfmodel.serving.clock import Clock
from perfmodel.serving.cost import Array, Cost
from perfmodel.serving.host import Host
from perfmodel.serving.memory import Held


class Draft(Protocol):
    """What a draft model has to tell: the cost of a step, its kernels and their launches, as a `Deployment` does."""

    @property
    def table(self) -> Clock:
        """Times of one GPU and one stage."""

    @property
    def held(self) -> Held:
        """What it keeps on one GPU."""

    @property
    def host(self) -> Host:
        """Its kernels, and their launches."""

    def device(
        self,
        sequences: Array,
        keys: Array,
        shape: tuple[int, ...] | None = None,
        chunks: Sequence[tuple[Array, ...]] = (),
        ended: Array | float = 0.0,
    ) -> Cost:
        """Return the cost of a step on the device, in which each sequence decodes one token and prompts are read."""


@dataclass(frozen=True)
class Speculation:
    """How tokens are guessed.

    Attributes
    ----------
    tokens : tokens that the draft proposes in a step.
    acceptance : probability that a proposed token is accepted, the same for all (Leviathan et al. 2023, arXiv
        2211.17192).
    draft : the deployment of the draft model; None for a draft without a model of its own (n-grams, extra heads).

    Raises
    ------
    UsageError
        On construction, for no token, or an acceptance outside 0 to 1.
    """

    tokens: int
    acceptance: float
    draft: Draft | None = None

    def __post_init__(self) -> None:
        if self.tokens < 1:
            raise UsageError(
                f"a draft of {self.tokens} tokens speculates on none.", place="speculation", remedy="Give 1 or more."
            )
        if not 0 <= self.acceptance <= 1:
            raise UsageError(
                f"an acceptance of {self.acceptance:g} is not within 0 to 1.", place="speculation",
                remedy="It is the probability that a proposed token is kept.",
            )  # fmt: skip

    @property
    def gained(self) -> float:
        """Tokens of a step, in the mean: (1 - a^(g + 1)) / (1 - a).

        >>> Speculation(3, 0.0).gained, Speculation(3, 1.0).gained
        (1.0, 4.0)
        """
        if self.acceptance == 1.0:
            return self.tokens + 1.0
        return (1.0 - self.acceptance ** (self.tokens + 1)) / (1.0 - self.acceptance)
