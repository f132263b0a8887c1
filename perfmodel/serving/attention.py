"""Attention of the layers of one GPU in a step: over keys, over chosen or compressed keys, latent; and states."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from perfmodel.core.hardware import Hardware
from perfmodel.operators.attention import Attention, chunk_pairs
from perfmodel.operators.mla import Mla
from perfmodel.prediction.latency.machine import NVIDIA
from perfmodel.prediction.sparse_attention import (
    COMPRESSED_DEVIATION,
    SCORE_BYTES,
    SPARSE_DECODE_SHARE,
    SPARSE_SHARE,
)
from perfmodel.serving.cost import Array, Deviation, kernel
from perfmodel.serving.engine import Engine
from perfmodel.serving.kept_bytes import index_key_bytes, vector_bytes
from perfmodel.serving.shard import Shard
from perfmodel.workloads.reach import Reach
from perfmodel.workloads.state_layer import StateLayer

#: attention to compressed keys: share of the bandwidth that it reaches, and its start [s]: assumed
LATENT_READ, LATENT_START_S = 0.75, 5e-6
#: share of the peak in 8 bits, and of the bandwidth, that the scores of an indexer reach, their start [s], and the
#: standard deviation of ln(measured / predicted): assumed, DeepGEMM's kernels are tuned as FlashMLA's are
INDEX_SHARE, INDEX_READ, INDEX_START_S, INDEX_DEVIATION = 0.6, 0.75, 10e-6, 0.4
#: heads that kernels of NVIDIA's machines multiply at least: fewer are padded (vLLM's ``get_padded_num_q_heads``:
#: FlashMLA's kernel for compressed keys has 64 or 128)
LEAST_HEADS = 64
#: sizes of a call of attention in a step
_SIZES = ("batch", "seq_q", "seq_kv")


@dataclass(frozen=True)
class LayerAttention:
    """What attends: a GPU's part of a model with an engine's kernels, on a machine.

    Attributes
    ----------
    shard, engine, hardware : the part of the model, the engine's profile, the machine.
    dtype, kv : of queries and products, and of keys and values.
    """

    shard: Shard
    engine: Engine
    hardware: Hardware
    dtype: str
    kv: str

    def over_layers(self, **sizes: Any) -> tuple[Array, Array]:
        """Return the time of attention of all layers [s], and its deviation.

        Parameters
        ----------
        sizes : ``batch``, ``seq_q`` and ``seq_kv``: sequences, new tokens of each, and keys of each.
        """
        shard = self.shard
        whole = {name: np.maximum(1.0, np.round(value)) for name, value in sizes.items()}
        time: Array = np.zeros(np.broadcast_shapes(*(value.shape for value in whole.values())))
        spread = time
        for reach, layers in shard.reaches:
            part = shard if reach.ratio else shard.windowed or shard
            each, deviation = self._of(reach)(part, reach, **whole)
            time, spread = time + layers * each, spread + layers * each * deviation
        if shard.cross_tokens:
            each, deviation = self._cross(whole["batch"], whole["seq_q"])
            time, spread = time + shard.layers * each, spread + shard.layers * each * deviation
        if shard.state and shard.state.has_states:
            each, deviation = self._states(shard.state, whole["batch"], whole["seq_q"])
            time = time + shard.linear_layers * each
            spread = spread + shard.linear_layers * each * deviation
        if shard.index_layers > 0:
            each = np.where(self._chooses(whole), self._index(*(whole[name] for name in _SIZES)), 0.0)
            time = time + shard.index_layers * each
            spread = spread + shard.index_layers * each * INDEX_DEVIATION
        return time * self.engine.slower, spread / time

    def _of(self, reach: Reach) -> Callable[..., tuple[Array, Array]]:
        """Return what computes attention of a kind of layers."""
        if self.shard.shared_vector:
            return self._compressed
        if self.shard.block_indexer and reach.chosen:
            return self._blocks
        return self._chunked if reach.chunked else self._attention

    @property
    def guessed_s(self) -> float:
        """Time to write the states that one guessed token of a sequence leaves, in case it is the last accepted [s].

        A step that verifies a draft computes the states of its tokens from one another, and writes each, at the
        datasheet's bandwidth.
        """
        shard = self.shard
        if not shard.state:
            return 0.0
        rate = self.hardware.main_memory.bandwidth_bytes_per_s or math.nan
        return self.engine.slower * shard.linear_layers * shard.state.state_bytes / rate

    def _states(self, state: StateLayer, sequences: Array, tokens: Array) -> tuple[Array, Array]:
        """Return the time of a layer's states for some new tokens of each sequence [s], and its deviation.

        One token reads and writes the state; several are computed in chunks, from a state to the next.
        """
        steps = bool(np.all(tokens == 1))
        op = state.operator(
            batch=sequences, seq=tokens, carried=True, dtype=self.dtype,
            algorithm="recurrent" if steps else "chunked",
        )  # fmt: skip
        time, deviation = kernel(op, self.hardware, self.engine.library)
        return state.slower(steps) * time, deviation.whole

    def _cross(self, sequences: Array, queries: Array) -> tuple[Array, Array]:
        """Return the time of a layer's attention to what an encoder gave of each sequence [s], and its deviation."""
        shard = replace(self.shard, causal=False)
        keys = np.full(np.broadcast_shapes(sequences.shape, queries.shape), float(shard.cross_tokens))
        return self._attention(shard, Reach(), batch=sequences, seq_q=queries, seq_kv=keys)

    def _blocks(self, shard: Shard, reach: Reach, **sizes: Any) -> tuple[Array, Array]:
        """Return the time of attention to blocks of keys that an indexer chooses for each head of these [s].

        Each query attends to as many keys as with a window of all blocks' tokens, whose kernel stands for theirs.
        """
        time, deviation = self._attention(shard, Reach(reach.chosen, ratio=0), **sizes)
        return time, np.where(self._chooses(sizes), COMPRESSED_DEVIATION, deviation)

    def _attention(self, shard: Shard, reach: Reach, **sizes: Any) -> tuple[Array, Array]:
        library = self.engine.attention_on(self.hardware.matrix_instruction)
        if shard.kv_lora and not shard.expanded and np.all(sizes["seq_q"] == 1):
            time, deviation = self._latent(**sizes)
            return time, deviation.whole
        op = Attention(
            heads=shard.heads, kv_heads=shard.heads if shard.kv_lora else shard.kv_heads,
            head_dim=shard.expanded or shard.head_dim,
            value_dim=0 if shard.expanded or shard.value_dim == shard.head_dim else shard.value_dim,
            causal=shard.causal, window=reach.window, dtype=self.dtype, kv_dtype=self.kv, **sizes,
        )  # fmt: skip
        time, deviation = kernel(op, self.hardware, library)
        if not shard.index_heads or shard.block_indexer:
            return time, deviation.whole
        chosen, (sparse, unsure) = self._chooses(sizes), self._latent(**sizes)
        return np.where(chosen, sparse, time), np.where(chosen, unsure.whole, deviation.whole)

    def _chunked(self, shard: Shard, reach: Reach, **sizes: Any) -> tuple[Array, Array]:
        """Return the time of attention to the keys of a query's own chunk [s], and its deviation.

        Prompts take the share of pairs of a window's kernel, one query reads the keys before it in its chunk.
        """
        queries, keys = sizes["seq_q"], sizes["seq_kv"]
        pairs = chunk_pairs(queries, keys, reach.window)
        if np.all(queries == 1):
            return self._attention(shard, Reach(), **{**sizes, "seq_kv": np.round(pairs)})
        time, deviation = self._attention(shard, reach, **sizes)
        window = Attention(heads=1, head_dim=1, seq_q=queries, seq_kv=keys, causal=True, window=reach.window)
        return time * pairs / window.pairs(), deviation

    def _compressed(self, shard: Shard, reach: Reach, **sizes: Any) -> tuple[Array, Array]:
        """Return the time of attention to a window and to compressed keys [s], and its deviation.

        t = start + max(bytes of the keys / bandwidth, FLOP / peak): all heads share one vector that is key and value,
        4 head_dim FLOP for each pair and head. The kernels are those of sparse latent attention, which gather keys by a
        list of places; a key is read once for all queries of a sequence.
        """
        sequences, queries, tokens = (sizes[name] for name in _SIZES)
        share = SPARSE_DECODE_SHARE if np.all(queries == 1) else SPARSE_SHARE
        heads = max(shard.heads, LEAST_HEADS) if self.hardware.vendor == NVIDIA else shard.heads
        flop = 4.0 * sequences * reach.pairs(queries, tokens) * heads * shard.head_dim
        seen = np.minimum(tokens, reach.window + queries - 1.0)
        keys = np.minimum(reach.entries(tokens), queries * reach.chosen if reach.chosen else np.inf)
        read = sequences * (seen + keys) * vector_bytes(shard, self.kv)
        rate = LATENT_READ * (self.hardware.main_memory.bandwidth_bytes_per_s or np.nan)
        time = LATENT_START_S + np.maximum(read / rate, flop / (share * self.hardware.best_peak(self.dtype).flop_per_s))
        return np.asarray(time), np.full(np.shape(time), COMPRESSED_DEVIATION)

    def _chooses(self, sizes: Mapping[str, Array]) -> npt.NDArray[np.bool_]:
        """Return where an indexer chooses among keys: of more than it leaves, in some engines of all prompts.

        An indexer of compressed keys always does (assumed of engines; so does DeepSeek's own code).
        """
        many = np.asarray(sizes["seq_kv"] > self.shard.index_keys * (self.shard.index_ratio == 1))
        return many if self.engine.dense_prompts else many | (sizes["seq_q"] > 1)

    def _index(self, prompts: Array, tokens: Array, keys: Array) -> Array:
        """Return the time of the scores of one indexer, and of choosing among them [s].

        t = start + max(bytes of the keys / bandwidth, FLOP / peak) + bytes of the scores / bandwidth: 2 heads head_dim
        FLOP for each pair of a query and a key before it. One query reads all keys of its sequence, which may each
        stand for several tokens. Scores of blocks are the largest of their keys', which a kernel keeps on the chip
        (assumed), and are formed in 16 bits.
        """
        shard, hardware = self.shard, self.hardware
        among = Reach(ratio=shard.index_ratio)
        pairs = prompts * among.pairs(tokens, keys)
        rate = INDEX_READ * (hardware.main_memory.bandwidth_bytes_per_s or np.nan)
        dtype = "fp8" if "fp8" in hardware.dtypes() and not shard.block_indexer else self.dtype
        flop = 2.0 * pairs * shard.index_heads * shard.index_head_dim
        scores = flop / (INDEX_SHARE * hardware.best_peak(dtype).flop_per_s)
        read = prompts * among.entries(keys) * index_key_bytes(shard) / rate
        written = 0.0 if shard.block_indexer else SCORE_BYTES
        return np.asarray(INDEX_START_S + np.maximum(read, scores) + pairs * written / rate)

    def _latent(self, *, batch: Array, seq_q: Array, seq_kv: Array) -> tuple[Array, Deviation]:
        """Return the time of attention whose heads all read the same latent keys [s], and its deviation.

        Decode reads all keys, or those that an indexer chooses. Prompts come here for chosen keys alone.
        """
        shard = self.shard
        chooses = self._chooses({"seq_q": seq_q, "seq_kv": seq_kv}) & (shard.index_heads > 0)
        op = Mla(
            batch=batch, heads=shard.heads, seq_q=seq_q, seq_kv=seq_kv, latent=shard.kv_lora, rope_dim=shard.rope_dim,
            causal=True, chosen=np.where(chooses, shard.index_keys, 0), dtype=self.dtype, kv_dtype=self.kv,
        )  # fmt: skip
        return kernel(op, self.hardware, self.engine.library)
