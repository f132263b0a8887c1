"""Memory of a deployment: weights, keys and values, activations, and the largest batch that fits."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from perfmodel.core.hardware import Hardware
from perfmodel.core.report import Reportable
from perfmodel.core.units import format_binary
from perfmodel.core.work import Number, plain
from perfmodel.errors import UsageError
from perfmodel.serving.blocks import Windows, kept
from perfmodel.serving.engine import Engine
from perfmodel.serving.kept_bytes import (
    all_kept_width,
    kept_in_windows,
    kv_token_bytes,
    sequence_bytes,
    state_bytes,
    step_token_bytes,
    unused_token_bytes,
)
from perfmodel.serving.parallel import Parallel
from perfmodel.serving.precision import Format, beside_experts
from perfmodel.serving.shard import Shard, stage_parts
from perfmodel.workloads.matrices import count_parameters
from perfmodel.workloads.model_config import ModelConfig
from perfmodel.workloads.state_layer import IN_SIXTEEN_BITS

#: share of the capacity that a process can allocate: the driver and the CUDA context take the rest (H100: 81,559 MiB
#: shown of 80 GiB less 0.5 to 1 GB of the context)
USABLE = 0.985


@dataclass(frozen=True)
class Memory(Reportable):
    """What a deployment keeps in the memory of one GPU.

    Attributes
    ----------
    capacity_bytes, weights_bytes, activations_bytes, workspace_bytes, kv_bytes : of one GPU [B]; ``kv_bytes`` is the
        room for keys and values.
    kv_bytes_token : keys and values of one token in all layers, over all GPUs of a copy of the model [B].
    kv_bytes_token_gpu : the part on one GPU [B].
    windows : layers that keep the last tokens of a sequence alone: how many tokens, and the share of a token's bytes.
    windows_apart : these layers have a pool of their own, so that a sequence takes all of its tokens of the others'.
    state_bytes : what layers with a state keep of a sequence on one GPU, however long it is [B].
    states : states that they keep of it: that of its last token, and of each token that a draft guesses.
    all_state_bytes : one of them over all GPUs of a copy of the model [B].
    state_pool_bytes : memory of one GPU for states alone [B]; 0 where they share that of keys and values.
    most_states : sequences whose states fit in that pool, over all copies of the model; infinite without one.
    sequence_bytes : what layers with compressed keys keep of a sequence on one GPU, however long it is: the window, and
        tokens that no key holds yet; or keys and values of an encoder's tokens [B].
    cross_tokens : these tokens.
    all_sequence_bytes : the same over all GPUs of a copy of the model [B].
    step_bytes : the part of ``kv_bytes`` that these windows need for the new tokens of the largest step [B].
    kv_tokens : tokens that fit, in all layers, over all copies of the model; infinite where no layer keeps keys.
    copies : copies with sequences of their own.
    block_tokens : tokens of a block.
    reserve : blocks are reserved for the whole sequence.
    """

    capacity_bytes: float
    weights_bytes: float
    activations_bytes: float
    workspace_bytes: float
    kv_bytes: float
    kv_bytes_token: float
    kv_bytes_token_gpu: float
    windows: Windows
    kv_tokens: float
    copies: int
    block_tokens: int
    reserve: bool
    state_bytes: float = 0.0
    states: int = 1
    all_state_bytes: float = 0.0
    state_pool_bytes: float = 0.0
    most_states: float = math.inf
    sequence_bytes: float = 0.0
    all_sequence_bytes: float = 0.0
    step_bytes: float = 0.0
    windows_apart: bool = False
    cross_tokens: int = 0

    def __repr__(self) -> str:
        """Return what of a GPU's memory goes to what, in a line."""
        weights, kv, whole = (format_binary(one) for one in (self.weights_bytes, self.kv_bytes, self.capacity_bytes))
        return f"<Memory: {weights} of weights and {kv} for keys and values, of {whole} of a GPU>"

    def max_batch(self, isl: int, osl: int, prefix: int = 0) -> int:
        """Return how many sequences of these lengths fit at once, over all copies.

        With reservation each takes isl + osl tokens from its first step on; on demand it takes half of its answer in
        the mean. Blocks are whole. All share the blocks of a cached prefix of their prompts.
        """
        return int(self.most(float(isl), float(osl), float(prefix)))

    def most(self, isl: Number, osl: Number, prefix: Number = 0.0) -> Number:
        """Return `max_batch` for arrays of lengths."""
        own = np.maximum(1.0, np.subtract(isl, prefix))  # a prefix is shorter than its prompts
        held = self.of_sequence(self.length(own, osl))
        blocks = np.ceil(held / self.block_tokens) * self.block_tokens
        fitting = np.floor(np.subtract(self.kv_tokens, self.shared(prefix)) / blocks)
        return plain(np.minimum(fitting, self.most_states))

    def shared(self, prefix: Number) -> Number:
        """Return the tokens of a cached prefix: all sequences of a copy of the model share its blocks."""
        return plain(np.minimum(np.multiply(self.copies, self.kept(prefix)), self.kv_tokens))

    def length(self, isl: Number, osl: Number) -> Number:
        """Return the tokens of a running sequence, in the mean over its time; with reservation all of them."""
        return plain(np.add(isl, osl) if self.reserve else np.add(isl, np.multiply(osl, 0.5)))

    def kept(self, tokens: Number) -> Number:
        """Return how many tokens of the cache a sequence of so many tokens takes."""
        return plain(kept(np.asarray(tokens), self.sharing_windows))

    @property
    def sharing_windows(self) -> Windows:
        """The windows in whose layers a sequence leaves room for others."""
        return () if self.windows_apart else self.windows

    @property
    def state_tokens(self) -> float:
        """Tokens that take as much of the cache as what a sequence keeps however long it is, its states among it.

        States in a pool of their own take none.
        """
        kept = self.sequence_bytes + (0.0 if self.state_pool_bytes else self.state_bytes)
        return kept / self.kv_bytes_token_gpu if kept else 0.0

    def room(self) -> str:
        """Return the room of the cache in words, for messages."""
        others = "keys of the encoder take" if self.cross_tokens else "window takes"
        kept = others if self.sequence_bytes else "states take"
        if math.isinf(self.kv_tokens):
            return f"the pool for states holds those of {self.most_states:.0f} sequences"
        states = f", and a sequence's {kept} as much as {self.state_tokens:.0f}" if self.state_tokens else ""
        return f"the KV cache holds {self.kv_tokens} tokens{states}"

    def of_sequence(self, tokens: Number) -> Number:
        """Return how many tokens take what a running sequence of so many has of the cache: `kept`, and its states."""
        return plain(np.add(self.kept(tokens), self.state_tokens)) if self.state_tokens else self.kept(tokens)

    def moved_bytes(self, tokens: Number) -> Number:
        """Return the bytes that a decode step moves of a sequence on one GPU: it reads a state, and writes each."""
        states = self.state_bytes / self.states + self.state_bytes
        read = kept(np.asarray(tokens), self.windows)
        return plain(np.multiply(read, self.kv_bytes_token_gpu) + states + self.sequence_bytes)


class Held(NamedTuple):
    """What a model keeps on one GPU of its fullest stage.

    Attributes
    ----------
    weights_bytes : of the weights [B].
    token_bytes : keys and values of one token in all layers [B].
    token_bytes_all : the same over all GPUs of a copy of the model [B].
    windows : most tokens that some layers keep, and their part of ``token_bytes`` [B].
    state_bytes : what layers with a state keep of a sequence [B].
    state_bytes_all : the same over all GPUs of a copy of the model [B].
    sequence_bytes, sequence_bytes_all : the same of layers with compressed keys: windows, and tokens not compressed
        yet.
    step_token_bytes : what these keep of each new token of a step until it leaves the window and is compressed [B].
    unused_token_bytes, unused_window_bytes : what layers with the keys of others would have of a token, and the part of
        it that those with a window would: engines with pools by layers leave room for it [B].
    """

    weights_bytes: float = 0.0
    token_bytes: float = 0.0
    token_bytes_all: float = 0.0
    windows: tuple[tuple[int, float], ...] = ()
    state_bytes: float = 0.0
    state_bytes_all: float = 0.0
    sequence_bytes: float = 0.0
    sequence_bytes_all: float = 0.0
    step_token_bytes: float = 0.0
    unused_token_bytes: float = 0.0
    unused_window_bytes: float = 0.0

    def beside(self, other: Held) -> Held:
        """Return what both models keep."""
        return Held(
            self.weights_bytes + other.weights_bytes,
            self.token_bytes + other.token_bytes,
            self.token_bytes_all + other.token_bytes_all,
            self.windows + other.windows,
            self.state_bytes + other.state_bytes,
            self.state_bytes_all + other.state_bytes_all,
            self.sequence_bytes + other.sequence_bytes,
            self.sequence_bytes_all + other.sequence_bytes_all,
            self.step_token_bytes + other.step_token_bytes,
            self.unused_token_bytes + other.unused_token_bytes,
            self.unused_window_bytes + other.unused_window_bytes,
        )

    def pooled_bytes(self, window_pool: float) -> float:
        """Return what a token takes of pools by layers, of which those with a window have so many times the tokens."""
        windowed = sum(size for _, size in self.windows) + self.unused_window_bytes
        return self.token_bytes + self.unused_token_bytes - (1.0 - window_pool) * windowed


def held_by(config: ModelConfig, part: Shard, parallel: Parallel, weights: Format, kv: str) -> Held:
    """Return what a model keeps on one GPU: its weights, and the keys and values of a token.

    A part has the layers of the mean stage. Stages differ where layers of a kind do not divide: of the weights, the
    keys and values and the states, those of the stage that has most of them count.
    """
    stages = stage_parts(config, part, parallel.pp)
    keys = max(stages, key=lambda stage: kv_token_bytes(stage, kv))
    grows = keys.window > 0 and not keys.compressed_layers
    windowed = kept_in_windows(keys) / all_kept_width(keys) if grows else 0.0
    copies = (1 if part.keeps_alike else parallel.tp) * parallel.pp
    return Held(
        max(weights_bytes(config, stage, parallel, weights) for stage in stages),
        kv_token_bytes(keys, kv),
        kv_token_bytes(part, kv) * copies,
        ((part.window, windowed * kv_token_bytes(keys, kv)),) if windowed else (),
        max(state_bytes(stage) for stage in stages),
        state_bytes(part) * parallel.tp * parallel.pp,
        max(sequence_bytes(stage, kv) for stage in stages),
        sequence_bytes(part, kv) * copies,
        max(step_token_bytes(stage, kv) for stage in stages),
        *(max(values) for values in zip(*(unused_token_bytes(stage, kv) for stage in stages), strict=True)),
    )


def memory_of(
    held: Held,
    part: Shard,
    parallel: Parallel,
    engine: Engine,
    hardware: Hardware,
    max_batched_tokens: int,
    kv_tokens: int | None,
    utilization: float | None = None,
    states: int = 1,
) -> Memory:
    """Return the memory of one GPU; ``kv_tokens`` overrides the room that is computed.

    A sequence keeps so many ``states``: where a guessed token is rejected, it goes on from the state before it.

    room = 0.985 capacity. Engines that take a share of the memory have share x room - weights - activations for keys
    and values; TensorRT-LLM a share of what weights and activations leave. An engine with a pool for layers' states
    takes it from that room. Windows of layers with compressed keys take the new tokens of a step first. Where layers
    with a window have a pool of their own, the tokens that fit are those of the other layers' pool.

    Raises
    ------
    UsageError
        When weights and activations do not fit: by how much, and what would.
    """
    capacity = float(hardware.main_memory.capacity_bytes or 0.0)
    stored, activations = held.weights_bytes, activation_bytes(part, max_batched_tokens)
    share = engine.utilization if utilization is None else utilization
    beside, room = activations + engine.workspace_bytes, USABLE * capacity
    left = share * (room - stored - beside) if engine.of_free else share * room - stored - beside
    for_step = max_batched_tokens * held.step_token_bytes
    if left <= for_step and kv_tokens is None:
        raise _does_not_fit(hardware, stored, beside + for_step, share * room, parallel)
    alone = held.state_bytes > 0 and not held.token_bytes  # states have all of the room where there are no keys
    pool = max(left, 0.0) * (1.0 if alone else engine.state_share) if held.state_bytes else 0.0
    left -= pool
    kept = states * held.state_bytes
    apart = engine.window_pool > 0 and bool(held.windows)
    token_bytes = held.pooled_bytes(engine.window_pool) if apart else held.token_bytes
    return Memory(
        capacity_bytes=capacity,
        weights_bytes=stored,
        activations_bytes=activations,
        workspace_bytes=engine.workspace_bytes,
        kv_bytes=max(left, 0.0),
        kv_bytes_token=held.token_bytes_all,
        kv_bytes_token_gpu=held.token_bytes,
        windows=tuple((window, size / held.token_bytes) for window, size in held.windows),
        kv_tokens=_kv_tokens(token_bytes, left - for_step) * parallel.dp if kv_tokens is None else kv_tokens,
        copies=parallel.dp,
        block_tokens=engine.block_tokens,
        reserve=engine.reserve or engine.scheduler == "static",  # a batch has to fit at its end
        state_bytes=kept,
        states=states,
        all_state_bytes=held.state_bytes_all,
        sequence_bytes=held.sequence_bytes,
        all_sequence_bytes=held.sequence_bytes_all,
        step_bytes=for_step,
        windows_apart=apart,
        cross_tokens=part.cross_tokens,
        state_pool_bytes=pool,
        most_states=pool // (engine.state_copies * kept) * parallel.dp if pool else math.inf,
    )


def _kv_tokens(token_bytes: float, room: float) -> float:
    """Return how many tokens of keys and values have room; infinite for a model that keeps none."""
    return int(room // token_bytes) if token_bytes else math.inf


def activation_bytes(part: Shard, tokens: int) -> float:
    """Return the bytes of activations of the largest step: the residual stream and the widest MLP, twice each [B].

    Where no layer has an MLP, what the matrix before a state gives, values beside gates, stands for it.
    """
    if part.encoder:  # the tokens of one sequence at least
        return max(activation_bytes(replace(part, encoder=None), tokens), activation_bytes(part.encoder, max(
            tokens, part.cross_tokens)))  # fmt: skip
    alone = part.state if part.bare_layers == part.layers else None
    into = alone.matrices()[0].n if alone else 0
    width = max(
        2.0 * part.ffn,
        2.0 * part.kv_shared_ffn,
        part.layers * part.layer_embedding,
        2.0 * part.top_k * part.expert_ffn,
        into,
    )
    return tokens * (2.0 * part.hidden + width) * 2.0


def weights_bytes(config: ModelConfig, part: Shard, parallel: Parallel, weights: Format) -> float:
    """Return the bytes of the weights on one GPU: matrices and tables in their formats [B].

    The first of several stages has the embedding, the last one the head.
    """
    hidden = part.hidden
    gates = 3 if part.gated else 2
    index = (part.q_lora or hidden) * part.index_heads * part.index_head_dim
    index += 0 if part.index_compressors else hidden * part.index_head_dim
    matrices = _attention_parameters(part) + part.index_layers * index
    matrices += sum(part.held(layers) * gates * hidden * width for width, layers in part.mlps)
    matrices += part.joint_layers * sum(n * k for n, k in part.block_matrices)
    matrices += 3 * part.layers * hidden * part.layer_embedding
    matrices += part.moe_layers * (gates * hidden * part.shared_ffn + _latent_parameters(part))
    experts = part.moe_layers * gates * part.expert_hidden * part.experts / parallel.ep * part.expert_ffn
    tables: float = (1 if config.tied or parallel.pp > 1 else 2) * part.vocab * part.embedding_dim
    tables += part.layer_embedding_vocab * part.layers * part.layer_embedding
    matrices += 2 * part.layers * hidden * part.laurel_rank + count_parameters(config.stream_linears())
    sixteen = part.moe_layers * part.scored_experts * hidden + part.layers * config.stream_parameters
    sixteen += sum(layers * one.parameters for one, layers in part.compressors)
    if config.encoder:
        across = config.layers * count_parameters(config.attention_matrices())
        matrices += (across + config.encoder_layers * count_parameters(config.encoder.layer_linears())) / parallel.tp
        sixteen += config.stem_parameters + (config.encoder_positions + config.positions) * hidden
    for matrix in part.state.matrices() if part.state else ():
        if matrix.name in IN_SIXTEEN_BITS:
            sixteen += part.linear_layers * matrix.parameters
        else:
            matrices += part.linear_layers * matrix.parameters
    beside = beside_experts(weights, "bf16") if part.experts else weights
    return matrices * beside.bytes + experts * weights.bytes + 2.0 * sixteen + weights.table_bytes * tables


def _attention_parameters(part: Shard) -> float:
    """Return the parameters of the matrices of attention of all layers."""
    if not part.is_latent:
        return sum(
            part.held(layers)
            * (part.attention_input * one.qkv_width + sum(count * n * k for count, n, k in one.output_matrices))
            for one, layers in part.attentions
        )
    nope = part.head_dim - part.rope_dim
    each = part.hidden * (part.made_width + part.q_lora)
    each += (part.q_lora or part.hidden) * part.heads * part.head_dim
    each += part.kv_lora * part.heads * (nope + part.value_dim)
    each += sum(count * n * k for count, n, k in part.output_matrices)
    return part.attending_layers * each


def _latent_parameters(part: Shard) -> int:
    """Return the parameters of the matrices that lead to experts of another width and back, which each GPU has."""
    return 2 * part.hidden * part.expert_hidden * part.has_latent_experts


def _does_not_fit(hardware: Hardware, stored: float, rest: float, room: float, parallel: Parallel) -> UsageError:
    needed = stored * parallel.tp * parallel.pp
    least = next((n for n in (1, 2, 4, 8, 16, 32, 64) if needed / n + rest < 0.95 * room), 0)
    fits = f"tp x pp = {least}" if least else "a larger machine"
    return UsageError(
        f"the model does not fit: {format_binary(stored)} of weights and {format_binary(rest)} of activations and "
        f"buffers on each {hardware.name}, {format_binary(stored + rest - room)} more than the engine's share of "
        f"{format_binary(room)}.",
        place="deployment",
        remedy=f"Possible: {fits}, or weights in fewer bits.",
    )
