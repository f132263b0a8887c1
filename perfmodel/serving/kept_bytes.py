"""What a model keeps of tokens and sequences on one GPU: keys and values, those of indexers, windows, states [B]."""

from __future__ import annotations

import math

from perfmodel.serving.precision import kv_bytes
from perfmodel.serving.shard import Shard


def kv_token_bytes(part: Shard, kv: str) -> float:
    """Return the bytes of keys and values of one token on one GPU, in all layers that keep them [B].

    Where layers have compressed keys, it is the token's share of these; windows are apart, see `sequence_bytes`.
    """
    index = part.index_layers * index_key_bytes(part) / part.index_ratio
    if not part.compressed_layers:
        return all_kept_width(part) * vector_bytes(part, kv) / max(1, part.kept_width) + index
    return sum(layers / reach.ratio for reach, layers in part.reaches if reach.ratio) * vector_bytes(part, kv) + index


def sequence_bytes(part: Shard, kv: str) -> float:
    """Return what is kept of a sequence on one GPU, however long it is, beside states [B].

    That is keys and values of an encoder's tokens, or what layers with compressed keys keep of it: the tokens of the
    window, and in fp32 those that no compressed key holds yet. Engines reserve both as a whole (vLLM manages what
    compression keeps as one more window), so that a sequence within the window has them, too.
    """
    if not part.compressed_layers:
        return part.layers * part.cross_tokens * vector_bytes(part, kv)
    unfinished = sum(layers * one.unfinished_bytes for one, layers in part.compressors)
    return part.attending_layers * part.window * vector_bytes(part, kv) + unfinished


def step_token_bytes(part: Shard, kv: str) -> float:
    """Return what layers with compressed keys keep of each new token of a step on one GPU [B].

    All of them have a place in the window, and in what compression keeps, until the step ends (vLLM's blocks of both
    are given back behind it; its issue 51041 shows 3 GB beside 3.9 kB a token of DeepSeek-V4-Flash).
    """
    if not part.compressed_layers:
        return 0.0
    places = sum(layers * one.token_bytes for one, layers in part.compressors)
    return part.attending_layers * vector_bytes(part, kv) + places


#: numbers that share a scale of one byte where a vector is kept in 8 bits, and the bytes to which scales are padded
_SCALED, _SCALES = 64, 8


def vector_bytes(part: Shard, kv: str) -> float:
    """Return what a layer keeps of one key: its vectors, or the one that is key and value, in a format [B].

    In 8 bits that one has its rotary part in 16 bits, and a scale for each 64 of the other numbers: 448 + 2 x 64 + 8 B
    in DeepSeek-V4 (vLLM's ``fp8_ds_mla``, SGLang's ``DSV4PoolConfigurator``). Pages that engines pad are not counted.
    """
    each = kv_bytes(kv)
    if not part.shared_vector or each > 1.0:
        return part.kept_width * each
    scaled = part.kept_width - part.rope_dim
    return scaled + 2.0 * part.rope_dim + _SCALES * math.ceil(scaled / (_SCALED * _SCALES))


def all_kept_width(part: Shard) -> float:
    """Return the numbers that all layers keep of one token."""
    return sum(layers * one.kept_width for one, layers in part.attentions)


def kept_in_windows(part: Shard) -> float:
    """Return those that layers with a window keep."""
    return (part.window_layers - part.kv_shared_window_layers) * (part.windowed or part).kept_width


def unused_token_bytes(part: Shard, kv: str) -> tuple[float, float]:
    """Return what layers with the keys of others would keep of one token, and the part of those with a window [B]."""
    windowed = part.kv_shared_window_layers * vector_bytes(part.windowed or part, kv)
    return (part.kv_shared_layers - part.kv_shared_window_layers) * vector_bytes(part, kv) + windowed, windowed


def state_bytes(part: Shard) -> float:
    """Return what the layers of one GPU with a state keep of a sequence [B]."""
    return part.linear_layers * part.state.state_bytes if part.state else 0.0


def index_key_bytes(part: Shard) -> float:
    """Return what an indexer keeps of one token: a key in 8 bits with its scale in fp32, of blocks in 16 bits [B]."""
    each = 2.0 * part.index_head_dim if part.block_indexer else part.index_head_dim + 4.0
    return each * (part.index_heads > 0)
