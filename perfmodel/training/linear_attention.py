"""Linear attention in training: the gated delta rule between a convolution and a gated norm, on one GPU.

A layer of Qwen3-Next computes queries, keys, values and a gate in one product, and a decay and a rate a head in
another; a convolution of a few taps passes over queries, keys and values; the heads of queries and keys are scaled to
length 1; the output is normalised head by head and gated (``Qwen3NextGatedDeltaNet`` of transformers).
"""

from __future__ import annotations

from perfmodel.core.hardware import Hardware, cached_per_machine
from perfmodel.operators.gated_delta import GatedDelta
from perfmodel.prediction.predict import predict
from perfmodel.training.kernels import CoreTime
from perfmodel.workloads.model_config import ModelConfig

#: tokens of a chunk, for which the triangle's inverse is kept until backward
CHUNK = 64


def mixed_width(config: ModelConfig) -> int:
    """Return the width of queries, keys and values of linear attention together."""
    return 2 * config.linear_key_width + config.linear_value_width


@cached_per_machine
def linear_core(hardware: Hardware, config: ModelConfig, sequences: float, seq: int, tp: int, dtype: str) -> CoreTime:
    """Return the time of the gated delta rule of one layer, on one of ``tp`` GPUs with a share of the heads."""
    forward, backward = (
        GatedDelta(
            batch=max(1, round(sequences)), heads=max(1, config.linear_heads // tp),
            key_heads=max(1, config.linear_key_heads // tp), seq=seq, head_dim=config.linear_head_dim,
            value_dim=config.linear_value_dim, chunk=CHUNK, dtype=dtype, backward=backward,
        )
        for backward in (False, True)
    )  # fmt: skip
    times = [float(predict(op, hardware).predicted_time_s) for op in (forward, backward)]
    return CoreTime(times[0], times[1], 0.0, 0.0, float(forward.flop()))


def linear_flop(config: ModelConfig, seq: int) -> float:
    """Return the forward FLOP of the gated delta rule of one sequence in all layers that have it."""
    if not config.linear_layers:
        return 0.0
    op = GatedDelta(
        heads=config.linear_heads, key_heads=config.linear_key_heads, seq=seq, head_dim=config.linear_head_dim,
        value_dim=config.linear_value_dim, chunk=CHUNK,
    )  # fmt: skip
    return config.linear_layers * float(op.flop())


def linear_stream_bytes(
    config: ModelConfig, tokens: float, tp: int, element_bytes: float
) -> tuple[list[float], list[float]]:
    """Return what each kernel between the products and the gated delta rule moves, forward and backward [B].

    The convolution with its activation and the scaling of queries and keys move 1 in and 1 out an element, backward 2
    in and 1 out; the norm with its gate 2 in and 1 out, backward 3 in and 2 out.
    """
    convolved = element_bytes * tokens * mixed_width(config) / tp
    scaled = element_bytes * tokens * 2 * config.linear_key_width / tp
    gated = element_bytes * tokens * config.linear_value_width / tp
    return [2 * convolved, 2 * scaled, 3 * gated], [3 * convolved, 3 * scaled, 5 * gated]


def linear_kept(config: ModelConfig, tokens: float, tp: int, element_bytes: float) -> tuple[float, float, float]:
    """Return what a linear attention keeps for backward [B]: inputs of the rule, its triangle, and its output.

    Queries, keys and values before and after the convolution, queries and keys scaled, the gate, a decay and a rate a
    head in fp32; T [chunk] a token and head; the output before and after norm and gate. States are computed anew
    (flash-linear-attention).
    """
    e, share = element_bytes, tokens / tp
    inputs = e * (2 * mixed_width(config) + 2 * config.linear_key_width + config.linear_value_width)
    rates = 2 * 4.0 * config.linear_heads
    return share * (inputs + rates), share * e * config.linear_heads * CHUNK, share * 2 * e * config.linear_value_width
