"""Memory of a deployment: weights, keys and values, activations, and the largest batch that fits."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from perfmodel.core.hardware import Hardware
from perfmodel.core.report import Reportable
from perfmodel.core.units import format_binary
from perfmodel.core.work import Number, plain
from perfmodel.errors import UsageError
from perfmodel.serving.engine import Engine
from perfmodel.serving.precision import Format, beside_experts, kv_bytes
from perfmodel.serving.shard import Parallel, Shard
from perfmodel.workloads.model_config import ModelConfig

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
    kv_bytes_token : keys and values of one token, over all GPUs of a copy of the model [B].
    kv_bytes_token_gpu : the part on one GPU, in layers that keep all tokens [B].
    window_bytes_sequence : keys and values of one sequence in layers with a window, once it is full, on one GPU [B].
    window : most tokens that those layers keep.
    kv_tokens : tokens that fit, over all copies of the model.
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
    window_bytes_sequence: float
    window: int
    kv_tokens: int
    copies: int
    block_tokens: int
    reserve: bool

    def max_batch(self, isl: int, osl: int) -> int:
        """Return how many sequences of these lengths fit at once, over all copies.

        With reservation each takes isl + osl tokens from its first step on; on demand it takes half of its answer in
        the mean. Blocks are whole.
        """
        return int(self.most(float(isl), float(osl)))

    def most(self, isl: Number, osl: Number) -> Number:
        """Return `max_batch` for arrays of lengths."""
        held = self.kept(self.length(isl, osl))
        blocks = np.ceil(held / self.block_tokens) * self.block_tokens
        each = blocks * self.kv_bytes_token_gpu + self.window_bytes_sequence
        if self.window_bytes_sequence == 0.0:
            return plain(np.floor(self.kv_tokens / blocks))
        return plain(np.floor(self.kv_tokens * self.kv_bytes_token_gpu / each))

    def length(self, isl: Number, osl: Number) -> Number:
        """Return the tokens of a running sequence, in the mean over its time; with reservation all of them."""
        return plain(np.add(isl, osl) if self.reserve else np.add(isl, np.multiply(osl, 0.5)))

    @property
    def forgets(self) -> bool:
        """Whether all layers have a window, so that nothing before it is kept."""
        return self.window > 0 and self.window_bytes_sequence == 0.0

    def kept(self, tokens: Number) -> Number:
        """Return how many of the tokens of a sequence are kept: those of the window, where all layers have one."""
        return plain(np.minimum(tokens, self.window)) if self.forgets else tokens


class Held(NamedTuple):
    """What a model keeps on one GPU of its fullest stage.

    Attributes
    ----------
    weights_bytes : of the weights [B].
    token_bytes : keys and values of one token, in the layers that keep all tokens [B].
    window_bytes : keys and values of one sequence in layers with a window, once it is full [B].
    token_bytes_all : keys and values of one token over all GPUs of a copy of the model [B].
    """

    weights_bytes: float = 0.0
    token_bytes: float = 0.0
    window_bytes: float = 0.0
    token_bytes_all: float = 0.0

    def beside(self, other: Held) -> Held:
        """Return what both models keep."""
        return Held(*map(sum, zip(self, other, strict=True)))


def held_by(config: ModelConfig, part: Shard, parallel: Parallel, weights: Format, kv: str) -> Held:
    """Return what a model keeps on one GPU: its weights, and the keys and values of a token.

    A part has the layers of the mean stage; where they do not divide, the fullest stage has the next whole number.
    """
    fullest = math.ceil(part.layers) / part.layers
    each = kv_token_bytes(part, kv)
    return Held(
        weights_bytes(config, part, parallel, weights, fullest),
        fullest * each,
        fullest * _window_bytes(part, kv),
        each * (1 if part.kv_lora else parallel.tp) * parallel.pp,
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
) -> Memory:
    """Return the memory of one GPU; ``kv_tokens`` overrides the room that is computed.

    room = 0.985 capacity. Engines that take a share of the memory have share x room - weights - activations for keys
    and values; TensorRT-LLM a share of what weights and activations leave.

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
    if left <= 0 and kv_tokens is None:
        raise _does_not_fit(hardware, stored, beside, share * room, parallel)
    return Memory(
        capacity_bytes=capacity,
        weights_bytes=stored,
        activations_bytes=activations,
        workspace_bytes=engine.workspace_bytes,
        kv_bytes=max(left, 0.0),
        kv_bytes_token=held.token_bytes_all,
        kv_bytes_token_gpu=held.token_bytes,
        window_bytes_sequence=held.window_bytes,
        window=part.window,
        kv_tokens=int(left // held.token_bytes) * parallel.dp if kv_tokens is None else kv_tokens,
        copies=parallel.dp,
        block_tokens=engine.block_tokens,
        reserve=engine.reserve,
    )


def activation_bytes(part: Shard, tokens: int) -> float:
    """Return the bytes of activations of the largest step: the residual stream and the widest MLP, twice each [B]."""
    width = max(part.ffn, part.top_k * part.expert_ffn)
    return tokens * (2.0 * part.hidden + 2.0 * width) * 2.0


def kv_token_bytes(part: Shard, kv: str) -> float:
    """Return the bytes of keys and values of one token on one GPU, in the layers that keep all tokens [B]."""
    layers = part.layers - part.window_layers
    if layers <= 0:  # all layers have the window: a token counts until it leaves it
        layers = part.layers
    width = part.kv_lora + part.rope_dim if part.kv_lora else 2 * part.kv_heads * part.head_dim
    return layers * width * kv_bytes(kv)


def _window_bytes(part: Shard, kv: str) -> float:
    """Return the bytes of one sequence in layers with a window [B]."""
    if part.window_layers <= 0 or part.window_layers >= part.layers:
        return 0.0
    return part.window_layers * part.window * 2 * part.kv_heads * part.head_dim * kv_bytes(kv)


def weights_bytes(config: ModelConfig, part: Shard, parallel: Parallel, weights: Format, fullest: float = 1.0) -> float:
    """Return the bytes of the weights on one GPU: matrices in their format, embedding and head in 16 bits [B].

    The first of several stages has the embedding, the last one the head; the fullest has ``fullest`` times the layers
    of the mean one.
    """
    hidden = part.hidden
    gates = 3 if part.gated else 2
    if part.kv_lora:
        nope = part.head_dim - part.rope_dim
        attention = hidden * (part.kv_lora + part.rope_dim + part.q_lora)
        attention += (part.q_lora or hidden) * part.heads * part.head_dim
        attention += part.kv_lora * part.heads * (nope + part.value_dim) + hidden * part.heads * part.value_dim
    else:
        attention = hidden * (part.qkv_width + part.heads * part.head_dim)
    matrices = part.layers * attention + part.dense_layers * gates * hidden * part.ffn
    matrices += part.moe_layers * gates * hidden * part.shared_ffn
    experts = part.moe_layers * gates * hidden * part.experts / parallel.ep * part.expert_ffn
    tables = (1 if config.tied or parallel.pp > 1 else 2) * part.vocab * hidden
    routers = part.moe_layers * part.experts * hidden
    beside = beside_experts(weights, "bf16") if part.experts else weights
    return fullest * (matrices * beside.bytes + experts * weights.bytes + 2.0 * routers) + 2.0 * tables


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
