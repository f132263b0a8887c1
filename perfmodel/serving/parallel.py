"""How the GPUs of a deployment share a model, and whether they divide it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from perfmodel.errors import UsageError
from perfmodel.workloads.model_config import ModelConfig

#: numbers of GPUs that messages name
_GPUS = (1, 2, 4, 8, 16, 32, 64)


@dataclass(frozen=True)
class Parallel:
    """How the GPUs share a model.

    Attributes
    ----------
    tp : GPUs that share each matrix and the heads.
    pp : stages of layers.
    ep : GPUs that share the experts of a layer, each with whole experts; the other ``tp dp / ep`` cut each expert.
    dp : copies of the attention (and of a dense model), each with its own sequences.
    halves : whether a step runs as two halves, the exchanges of one beside the compute of the other (SGLang's two-batch
        overlap, vLLM's dual batch overlap).
    """

    tp: int = 1
    pp: int = 1
    ep: int = 1
    dp: int = 1
    halves: bool = False

    @property
    def gpus(self) -> int:
        """GPUs of the deployment."""
        return self.tp * self.pp * self.dp

    @property
    def slots(self) -> int:
        """Copies of the attention times the micro-batches that stages keep in flight: each has sequences of its own."""
        return self.dp * self.pp

    @property
    def stage_gpus(self) -> int:
        """GPUs of a stage of one engine: those of a copy, or of all copies that share experts."""
        return self.tp * (self.dp if self.copies_share else 1)

    @property
    def expert_parts(self) -> int:
        """GPUs that cut each expert."""
        return max(1, self.tp * (self.dp if self.ep > 1 else 1) // self.ep)

    @property
    def copies_share(self) -> bool:
        """Whether several copies of the attention share experts, so that they compute their steps together."""
        return self.ep > 1 and self.dp > 1

    @property
    def replicas(self) -> int:
        """Copies of the model that share nothing: each is an engine with steps of its own."""
        return 1 if self.copies_share else self.dp


def check_parallel(config: ModelConfig, parallel: Parallel) -> None:
    """Raise where GPUs do not divide what they share of a model.

    Raises
    ------
    UsageError
        When they do not divide the heads, the layers or the experts, or a number of them is none.
    """
    for name, value in {"tp": parallel.tp, "pp": parallel.pp, "ep": parallel.ep, "dp": parallel.dp}.items():
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise UsageError(f"{name}={value!r} is not a whole number above 0.", place="deployment")
    tp, pp, ep = parallel.tp, parallel.pp, parallel.ep
    _check_heads(config, tp)
    if pp > config.layers:
        raise UsageError(
            f"pp={pp} is more than the model's {config.layers} layers.",
            place="deployment",
            remedy=f"Give 1 to {config.layers} stages.",
        )
    _check_sharing(config, pp)
    if ep > 1 and not config.experts:
        raise UsageError(f"ep={ep}, and the model has no experts.", place="deployment", remedy="Leave ep at 1.")
    if ep > 1 and config.experts % ep:
        raise _not_dividing("ep", ep, "experts", config.experts)
    if parallel.halves and not parallel.copies_share:
        raise UsageError(
            "batch_overlap hides exchanges of copies that share experts, and there are none.",
            place="deployment",
            remedy="Give ep and dp above 1, or leave batch_overlap out.",
        )
    if ep > 1 and (tp * parallel.dp) % ep:
        raise UsageError(
            f"ep={ep} does not divide the {tp * parallel.dp} GPUs of tp x dp.",
            place="deployment",
            remedy="The GPUs of a stage share the experts: ep is one of their divisors.",
        )


def _check_sharing(config: ModelConfig, pp: int) -> None:
    """Raise where layers of several stages would share weights, or keys and values."""
    blocks = f"{config.joint_layers} layers share {config.shared_blocks} blocks of attention and an MLP"
    keys = f"the last {config.kv_shared_layers} layers share keys and values of layers before them"
    shared = blocks if config.shared_blocks else keys if config.kv_shared_layers else ""
    if pp > 1 and shared:
        raise UsageError(
            f"pp={pp}, and {shared}, which lie on other stages: it is not modelled.",
            place="deployment",
            remedy="Leave pp at 1.",
        )


def _check_heads(config: ModelConfig, tp: int) -> None:
    if uneven := _uneven_heads(config, tp):
        raise _not_dividing("tp", tp, *uneven, [n for n in _GPUS if not _uneven_heads(config, n)])


def _uneven_heads(config: ModelConfig, tp: int) -> tuple[str, int] | None:
    """Return which heads so many GPUs do not share out evenly, and how many; a head of keys may be repeated."""
    for part, of in ((config, ""), (config.windowed, " of layers with a window")):
        if part.heads % tp:
            return f"query heads{of}", part.heads
        if part.kv_heads and part.kv_heads % tp and tp % part.kv_heads:
            return f"key and value heads{of}", part.kv_heads
    if config.output_groups % tp:
        return "groups of heads of the output", config.output_groups
    if config.linear_heads % tp:
        return "heads of layers with a state", config.linear_heads
    if config.linear_layers and config.linear_key_heads % tp and tp % config.linear_key_heads:
        return "key heads of layers with a state", config.linear_key_heads
    return None


def _not_dividing(name: str, value: int, what: str, number: int, allowed: Sequence[int] = ()) -> UsageError:
    allowed = allowed or [n for n in _GPUS if number % n == 0]
    return UsageError(
        f"{name}={value} does not divide the model's {number} {what}.",
        place="deployment",
        remedy=f"Possible: {', '.join(map(str, allowed))}.",
    )
