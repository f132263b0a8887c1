"""The FLOP of a training step: those of the model, by two conventions, and those that are executed."""

from __future__ import annotations

import functools

from perfmodel.training.activations import UNFUSED
from perfmodel.training.compressed import score_flop
from perfmodel.training.documents import of_sequence, spread_lengths, weighted_length
from perfmodel.training.plan import Recompute, TrainingPlan
from perfmodel.training.setup import encoder_tokens
from perfmodel.training.states import state_flop
from perfmodel.workloads.model_config import ModelConfig
from perfmodel.workloads.reach import Reach

#: share of the forward pass of the layers that is computed again; selective recomputes the core of attention only
_AGAIN = {Recompute.NONE: 0.0, Recompute.SELECTIVE: 0.0, Recompute.SELECTIVE_OP: 0.5, Recompute.SELECTIVE_LAYER: 0.5,
          Recompute.FULL: 1.0}  # fmt: skip


def step_flop(
    config: ModelConfig, plan: TrainingPlan, kernel: str = "unfused", logits_again: bool = False
) -> tuple[float, float, float]:
    """Return the model's FLOP of a step, with the causal half and the whole square of attention, and those executed.

    Model: 6 N a token, N the parameters that multiply it (no embedding, logits included, experts that it visits), and
    three times the forward products of attention; 4 N with frozen weights (LoRA). Executed: with what backward
    recomputes (selective: attention where its ``kernel`` is unfused; the logits ``logits_again``); attention under its
    mask. An encoder, and a
    decoder's keys and values of it, multiply its own tokens.
    """
    tokens = float(plan.batch * plan.seq)
    longer = float(plan.batch * (encoder_tokens(config, plan) - plan.seq))
    encoding = config.encoder_parameters + config.cross_key_parameters
    weights = 2.0 * ((config.multiplied_parameters - config.stem_parameters) * tokens + encoding * longer)
    weights += config.stem_flop * plan.batch * encoder_tokens(config, plan)
    documents = spread_lengths(plan.documents, plan.length_spread, plan.seq)
    half, whole = core_flop(config, plan.seq, encoder_tokens(config, plan), documents)
    half, whole = half * plan.batch, whole * plan.batch
    logits = 2.0 * config.vocab * config.embedding_dim * tokens
    layers = weights - logits
    share = _AGAIN[Recompute(plan.recompute)]
    again = share * (layers + (half if plan.recompute != Recompute.SELECTIVE_OP else 0.0))
    if plan.recompute == Recompute.SELECTIVE and kernel in UNFUSED and not config.architecture.shared_vector:
        again += half - plan.batch * state_flop(config, plan.seq)  # states are no part of it
    again += logits if logits_again else 0.0
    passes = 2.0 if plan.lora else 3.0  # frozen weights have no gradients
    model = passes * weights + 3.0 * half
    return model, passes * weights + 3.0 * whole, model + again


@functools.lru_cache(maxsize=4096)
def core_flop(
    config: ModelConfig, seq: int, encoder_seq: int = 0, documents: tuple[float, ...] = ()
) -> tuple[float, float]:
    """Return the forward FLOP of attention of one sequence in all layers: under its mask, and of the whole square.

    Of documents, the mask is causal within each, and the whole are their squares: no convention counts what lies
    between documents.

    With an encoder of ``encoder_seq`` tokens, its own attention and that of the decoder to it count in both. So do
    states, and the scores of indexers among compressed keys. Of layers with such keys the whole is that of as many keys
    as the last query has, for each query.
    """
    width, inside = _attended_width(config), _attended_width(config.windowed)
    masked = full = 0.0
    for reach, layers in config.reaches:
        each = 4.0 * layers * (width if reach.ratio else inside)

        def pairs(length: float, reach: Reach = reach) -> float:
            return float(reach.pairs(length, length)) if config.architecture.causal else length**2

        masked += each * (of_sequence(documents, seq, pairs) if documents else pairs(float(seq)))
        keys = float(reach.keys(seq)) if reach.compresses else weighted_length(documents) if documents else float(seq)
        full += each * seq * keys
    scored = config.index_layers * score_flop(config, seq) * (config.index_ratio > 1)
    others = 4.0 * width * encoder_seq * (config.encoder_layers * float(encoder_seq) + config.layers * float(seq))
    others += state_flop(config, seq) + scored
    return masked + others, full + others


def _attended_width(config: ModelConfig) -> float:
    """Return the mean width of all heads of queries and values of a layer."""
    return config.heads * (config.head_dim + config.value_dim) / 2.0
