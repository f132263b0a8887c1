"""Attention to a window and compressed keys in training, its indexer, and hyper-connections (DeepSeek-V4).

Attention is taken to run a fused kernel that gathers the keys of each query, whatever a plan names for other layers
(Megatron-Core's fused DSA through cuDNN, TileLang's kernels). An indexer is trained beside the rest: its scores are
compared with those of attention, so that they have gradients (Megatron-Core's indexer loss).
"""

from __future__ import annotations

from perfmodel.core.hardware import Hardware, cached_per_machine
from perfmodel.prediction.sparse_attention import SCORE_BYTES, SPARSE_SHARE
from perfmodel.training.kernels import BACKWARD_RATE, FLASH_BACKWARD, CoreTime, stream_time
from perfmodel.training.shard import Shard
from perfmodel.workloads.compressor import Compressor
from perfmodel.workloads.layer_kinds import Kind, reach_of
from perfmodel.workloads.model_config import ModelConfig
from perfmodel.workloads.reach import Reach

#: bytes of a key or a gate before compression: frameworks compute their sum in fp32
_WIDE = 4.0


def score_pairs(config: ModelConfig, seq: int) -> float:
    """Return the pairs of a query and a key that one indexer scores in a sequence."""
    return float(Reach(ratio=config.index_ratio).pairs(seq, seq)) if config.index_heads else 0.0


def score_flop(config: ModelConfig, seq: int) -> float:
    """Return the forward FLOP of the scores of one indexer for a sequence: 2 heads head_dim a pair."""
    return 2.0 * score_pairs(config, seq) * config.index_heads * config.index_head_dim


@cached_per_machine
def compressed_core(hardware: Hardware, config: ModelConfig, shard: Shard, kind: Kind) -> CoreTime:
    """Return the time of attention between the projections of one layer and micro batch on one GPU.

    Forward has 4 heads head_dim FLOP for each pair, at the rate of sparse latent attention; backward 2.5 times as many
    at the share of that rate which flash kernels have. Each GPU scores the keys of all heads of an indexer: backward
    has two such products, and scores are written and read in both passes.
    """
    dtype = shard.sixteen if shard.sixteen in hardware.dtypes() else "fp32"
    rate = SPARSE_SHARE * hardware.best_peak(dtype).flop_per_s
    pairs = shard.sequences * float(reach_of(config, kind).pairs(shard.seq, shard.seq))
    flop = 4.0 * pairs * config.heads / shard.tp * config.head_dim
    scored = shard.sequences * score_flop(config, shard.seq) * kind.indexed
    moved_s = stream_time(hardware, SCORE_BYTES * shard.sequences * score_pairs(config, shard.seq) * kind.indexed)
    forward = (flop + scored) / rate + moved_s
    backward = (FLASH_BACKWARD / BACKWARD_RATE * flop + 2.0 * scored) / rate + moved_s
    return CoreTime(forward, backward, 0.0, 0.0, flop + scored)


def compressors_of(config: ModelConfig, kind: Kind) -> tuple[Compressor, ...]:
    """Return what compresses the tokens of a layer."""
    return (*config.index_compressors * kind.indexed, *config.pool_compressors * kind.pooled)


def compressor_stream_bytes(config: ModelConfig, kind: Kind, tokens: float) -> tuple[list[float], list[float]]:
    """Return what the sums of keys by their gates move, forward and backward [B]: both in fp32, read; and gradients."""
    moved = [_WIDE * tokens * 2 * one.width for one in compressors_of(config, kind)]
    return moved, [2.0 * each for each in moved]


def compressed_kept(config: ModelConfig, kind: Kind, tokens: float, element_bytes: float) -> float:
    """Return what compression keeps for backward [B]: keys and gates of all tokens in fp32, the queries of an indexer.

    Compressed keys are a small part of it, and count before their norm.
    """
    sums = sum(2 * _WIDE * one.width + element_bytes * one.dim / one.ratio for one in compressors_of(config, kind))
    queries = element_bytes * config.index_heads * (config.index_head_dim + 1) * kind.indexed
    return tokens * (sums + queries)


def residual_elements(streams: int) -> tuple[float, float]:
    """Return what the kernels between two blocks move beside the norm, forward and backward, in hidden states.

    An addition reads two and writes one, and so does that of gradients. A hyper-connection of m streams reads m and
    writes their sum, then reads m with the block's output and writes m: 3 m + 2. Backward of the sum reads the
    streams and a gradient and writes m gradients, of the spreading it reads m streams, m gradients and the output, and
    writes m + 1 gradients: 5 m + 3.
    """
    return (3.0, 3.0) if streams == 1 else (3.0 * streams + 2.0, 5.0 * streams + 3.0)
