"""Layers with a state in training, on one GPU: the delta rules, Mamba, lightning attention, LFM2's.

A layer computes queries, keys, values and a gate; a convolution of a few taps passes over queries, keys and values; the
delta rules scale queries and keys to length 1; a norm and the gate follow (``Qwen3NextGatedDeltaNet``,
``NemotronHMamba2Mixer`` and others of transformers). See `perfmodel.workloads.state_layer`.
"""

from __future__ import annotations

from perfmodel.core.hardware import Hardware, cached_per_machine
from perfmodel.prediction.predict import predict
from perfmodel.training.kernels import NO_CORE, CoreTime
from perfmodel.workloads.model_config import ModelConfig


@cached_per_machine
def state_core(hardware: Hardware, config: ModelConfig, sequences: float, seq: int, tp: int, dtype: str) -> CoreTime:
    """Return the time of the states of one layer, on one of ``tp`` GPUs with a share of the heads."""
    state = config.state_layer.share(tp)
    if not state.has_states:
        return NO_CORE
    batch = max(1, round(sequences))
    forward, backward = (
        state.operator(backward=backward, batch=batch, seq=seq, dtype=dtype) for backward in (False, True)
    )
    times = [state.slower() * float(predict(op, hardware).predicted_time_s) for op in (forward, backward)]
    return CoreTime(times[0], times[1], 0.0, 0.0, batch * state.flop(seq))


def state_flop(config: ModelConfig, seq: int) -> float:
    """Return the forward FLOP of the states of one sequence in all layers that have them."""
    state = config.state_layer
    return config.linear_layers * state.flop(seq) if config.linear_layers else 0.0


def state_stream_bytes(
    config: ModelConfig, tokens: float, tp: int, element_bytes: float
) -> tuple[list[float], list[float]]:
    """Return what each kernel between the products and the states moves, forward and backward [B].

    The convolution with its activation, RWKV's mixing of tokens, and the scaling of queries and keys of the delta rules
    move 1 in and 1 out an element, backward 2 in and 1 out; a gate with its norm, if any, 2 in and 1 out, backward 3 in
    and 2 out.
    """
    state, each = config.state_layer, element_bytes * tokens / tp
    convolved = [each * state.passed_width] if state.passed_width else []
    scaled = [each * 2 * state.key_width] if state.rule.is_delta and not state.rule.is_rwkv else []
    gated = [each * state.value_width] * state.gates
    passed = [*convolved, *scaled]
    return (
        [*(2 * moved for moved in passed), *(3 * moved for moved in gated)],
        [*(3 * moved for moved in passed), *(5 * moved for moved in gated)],
    )


def states_kept(config: ModelConfig, tokens: float, tp: int, element_bytes: float) -> tuple[float, float, float]:
    """Return what a layer's states keep for backward [B]: inputs of the rule, its triangle, and its output.

    Inputs are queries, keys and values before and after the convolution or activation, those that the delta rules
    scale, the gate, and a decay and a rate (Mamba-2: a step) a head in fp32, of a scan a step a channel in the dtype of
    the activations (``selective_scan_fn`` of mamba-ssm). The delta rules keep T [chunk] a token and
    head. The output counts before and after norm and gate. States are computed anew (flash-linear-attention,
    mamba-ssm). LFM2's keeps values and gates, what the convolution reads and what it gives, and the output.
    """
    state, e, share = config.state_layer, element_bytes, tokens / tp
    if not state.has_states:
        return share * e * (state.mixed_width + 2 * state.value_width), 0.0, share * e * state.value_width
    inputs = e * state.kept_width
    rates = state.heads * (e if state.summed_width else 2 * 4.0)
    triangle = e * state.heads * state.chunk * state.rule.is_delta
    return share * (inputs + rates), share * triangle, share * 2 * e * state.value_width
