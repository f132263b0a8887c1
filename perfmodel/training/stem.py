"""The convolutions before an encoder of sound in training, as products (``WhisperEncoder`` of transformers)."""

from __future__ import annotations

from perfmodel.core.hardware import Hardware
from perfmodel.training.layer import Passes, product_passes
from perfmodel.training.layer_matrices import Matrix
from perfmodel.training.shard import Shard
from perfmodel.workloads.model_config import ModelConfig


def stem_work(hardware: Hardware, config: ModelConfig, shard: Shard) -> tuple[tuple[Passes, ...], float, float]:
    """Return the convolutions before an encoder of sound: their products, what their GELUs move [B], their parameters.

    The first has two results for a token of the encoder. A GELU reads and writes them.
    """
    linears = config.stem_linears()
    matrices = {
        one.name: Matrix(times * shard.tokens, one.n, one.k) for times, one in zip((2.0, 1.0), linears, strict=True)
    }
    passes = product_passes(hardware, matrices, shard._replace(dtype=shard.sixteen))
    moved = 2.0 * shard.element_bytes * 3.0 * shard.tokens * config.hidden
    return tuple(passes[one.name] for one in linears), moved, float(config.stem_parameters)
