"""The time of attention within the documents of a sequence, from that of a core of one length."""

from __future__ import annotations

from perfmodel.training.documents import of_sequence, weighted_length
from perfmodel.training.kernels import Core, CoreTime
from perfmodel.training.shard import Shard
from perfmodel.workloads.reach import Reach

#: tokens of a tile of queries and keys, whose whole scores a kernel computes, however short documents are (blocks of
#: FlexAttention's masks; kernels that give each document tiles of its own take longer where documents are shorter)
TILE = 128.0


def core_length(shard: Shard) -> float:
    """Return the tokens of the sequences of a core that has as many tokens as those of a shard, and their pairs."""
    if not shard.documents:
        return float(shard.seq)
    return min(float(shard.seq), max(weighted_length(shard.documents), TILE))


def of_documents(time: CoreTime, core: Core, shard: Shard) -> CoreTime:
    """Return the time of attention within documents, from that of whole ones of their weighted length.

    One kernel for any lengths runs all of them (FlashAttention's varlen, cuDNN's THD layout, FlexAttention's document
    mask). The core's sizes are whole numbers, and a window counts document by document: the time follows the pairs, of
    `TILE` tokens at least.
    """
    reach = Reach(core.window, 0, chunked=core.chunked) if core.window else Reach()

    def pairs(length: float) -> float:
        return float(reach.pairs(length, length)) if core.causal else length**2

    tile = min(TILE, float(shard.seq))
    exact = max(of_sequence(shard.documents, shard.seq, pairs), shard.seq / tile * pairs(tile))
    return time.scaled(shard.sequences * exact / (max(1, round(core.batch)) * pairs(float(round(core.seq)))))
