"""Gradients that data parallel ranks compress before they exchange them, and the time to do so.

What a method reads and writes, and how many kernels it runs, is that of
`perfmodel.prediction.algorithms.gradient_compression`; here the ranks are those of a training plan.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from perfmodel.cluster.collectives import exchange_time
from perfmodel.core.units import parse_fraction
from perfmodel.errors import UsageError, unknown_name
from perfmodel.prediction.algorithms.gradient_compression import HOST_S, METHODS
from perfmodel.training.kernels import stream_time
from perfmodel.training.result import TrainingStep
from perfmodel.training.setup import Setup, setup_of
from perfmodel.training.step import pipeline_gpus
from perfmodel.training.update import StageGpu, beside_passes, exchanged_gradients
from perfmodel.workloads.model_config import ModelConfig

#: spelling -> method, and what the number after the colon is
_NAMES = {
    "topk": ("top_k", "share of the gradients that is sent", 0.01),
    "powersgd": ("power_sgd", "rank", 4.0),
    "1bit": ("one_bit", "", 0.0),
    "fp8": ("fp8", "", 0.0),
}
_SINGLE = 4.0
#: bytes of one value and its index that top-k sends
_PAIR = 8.0


@dataclass(frozen=True)
class Compression:
    """A way to compress gradients.

    Attributes
    ----------
    name : "topk", "powersgd", "1bit" or "fp8".
    amount : share of the gradients that topk sends, rank of powersgd.
    """

    name: str
    amount: float

    @classmethod
    def parse(cls, text: str) -> Compression:
        """Return the method of a text: topk:0.01 or topk:1%, powersgd:4, 1bit, fp8.

        Raises
        ------
        UsageError
            For another name, or a number that it cannot have.
        """
        name, colon, number = text.strip().lower().partition(":")
        if name not in _NAMES:
            raise unknown_name("compression", name, _NAMES, place="--compress")
        _, meaning, default = _NAMES[name]
        if colon and not meaning:
            raise UsageError(f"{name} takes no number.", place="--compress", remedy=f"Write --compress {name}.")
        is_share = name == "topk"
        try:
            amount = parse_fraction(number, "--compress") if colon and is_share else float(number or default)
        except ValueError:
            raise UsageError(f"{number!r} is not a number.", place="--compress") from None
        most = 1.0 if is_share else 1e6
        if meaning and not 0.0 < amount <= most:
            raise UsageError(f"{number} is no {meaning}.", place="--compress", remedy=f"Write {name}:{default:g}.")
        return cls(name, amount)

    @property
    def text(self) -> str:
        """The method for people."""
        return f"{self.name}:{self.amount:g}" if _NAMES[self.name][1] else self.name

    @property
    def method(self) -> str:
        """Its name among the methods of a single exchange."""
        return _NAMES[self.name][0]

    def sent_bytes(self, rows: float, cols: float) -> float:
        """Return what is sent of the gradient of a matrix [rows, cols] [B].

        topk: a value and an index for each that is sent; powersgd: two factors of its rank in fp32; 1bit: a sign; fp8:
        one byte.
        """
        elements = rows * cols
        if self.name == "topk":
            return self.amount * elements * _PAIR
        if self.name == "powersgd":
            return min(self.amount, rows, cols) * (rows + cols) * _SINGLE
        return elements / 8.0 if self.name == "1bit" else elements


@dataclass(frozen=True)
class CompressedExchange:
    """What the exchange of compressed gradients costs a step.

    Attributes
    ----------
    exchange_s : that no compute hides [s].
    kernels_s : encoding and decoding [s].
    ratio : bytes of the gradients over what is sent.
    """

    exchange_s: float
    kernels_s: float
    ratio: float


def compressed_data_s(
    config: ModelConfig, step: TrainingStep, method: Compression, slower: float = 1.0
) -> CompressedExchange:
    """Return what compressed gradients cost a step instead of its term ``data``, on the GPU for which it is most.

    Gradients are those that the step exchanges: of all weights, or of adapters, each among the ranks that hold the same
    weights. Methods whose parts can be added on the way are all-reduced; topk and 1bit are gathered from all ranks, n
    times what one sends. With a distributed optimizer the new weights are gathered as before. The exchange hides behind
    the backward pass of one virtual stage, as that of whole gradients does; encoding and decoding hide behind nothing.
    Exchanges take ``slower`` times as long as expected.

    Raises
    ------
    UsageError
        For a plan that shares out gradients or weights, which are reduced and scattered, and for one rank.
    """
    plan = step.plan
    if plan.zero >= 2:
        raise UsageError(
            f"zero = {plan.zero} shares out gradients, which are then never whole.",
            place="--compress",
            remedy="Use --zero 0 or 1.",
        )
    setup = setup_of(config, step.cluster, plan)
    if setup.groups.data.ranks == 1:
        raise UsageError(
            "one data parallel rank exchanges no gradients.",
            place="--compress",
            remedy="Use more GPUs, or leave it out.",
        )
    gpus = (_compressed(setup, gpu, method, slower) for gpu in pipeline_gpus(setup))
    return max(gpus, key=lambda one: one.exchange_s + one.kernels_s)


def _compressed(setup: Setup, gpu: StageGpu, method: Compression, slower: float) -> CompressedExchange:
    """Return what the exchange of one GPU's gradients costs."""
    known, zero = METHODS[method.method], setup.plan.zero
    exchange = kernels = gradients = sent = 0.0
    for (group, count), matrix in zip(exchanged_gradients(setup, gpu), _matrices(setup), strict=True):
        if group.ranks == 1 or not count:
            continue
        part = count * method.sent_bytes(*matrix) / math.prod(matrix)
        all_parts = part * (group.ranks if known.gathered else 1.0)
        exchange += exchange_time(group, "all_gather" if known.gathered else "all_reduce", all_parts)
        if zero == 1:
            exchange += exchange_time(group, "all_gather", 2.0 * count)
        moved = known.passes * _SINGLE * count + known.gathered * all_parts
        kernels += stream_time(setup.hardware, moved) + known.kernels * HOST_S * max(1.0, gpu.layers)
        gradients, sent = gradients + count * setup.gradient_bytes, sent + part
    exchange_s = beside_passes(setup, gpu, slower * exchange, forward=zero > 0)
    return CompressedExchange(exchange_s, kernels, gradients / max(sent, 1.0))


def _matrices(setup: Setup) -> tuple[tuple[float, float], tuple[float, float]]:
    """Return rows and columns of a matrix whose gradient stands for those of layers, and of one for those of experts.

    Beside frozen weights it is one of an adapter.
    """
    config, plan = setup.config, setup.plan
    if plan.lora:
        adapter = float(plan.lora), float(config.hidden)
        return adapter, adapter
    experts = float(config.expert_width), float(config.expert_ffn or config.ffn) / setup.etp
    return (float(config.hidden), config.ffn / plan.tp), experts
