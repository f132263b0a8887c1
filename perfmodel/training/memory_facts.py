"""How a training framework uses memory: the table ``[memory]`` of its file in ``engine_specs/training``."""

from __future__ import annotations

import msgspec


class MemoryFacts(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a framework keeps a parameter, a logit and an activation.

    Attributes
    ----------
    sources : where each fact comes from, by key.
    weight_bytes : of a parameter between the steps.
    gradient_bytes : of a gradient between the micro batches.
    master_bytes : of the copy of a parameter that the optimizer updates, 0 if it updates the weight itself.
    moment_bytes : of one moment of Adam, SGD or Muon a parameter.
    cast_bytes : of a copy of each weight in the dtype of the products, kept through the step (autocast).
    narrow_weights : copies of the weights of 8-bit products are kept beside the weights, through all micro batches.
    loss_bytes : of logits and their gradients a logit, at the most.
    parallel_loss_bytes : the same where tensor parallel ranks share out the logits.
    norm_copies : an RMSNorm in separate kernels keeps a copy of its input in fp32.
    gate_copies : a gated MLP in separate kernels keeps activation(gate) beside its factors.
    expert_outputs : what experts send back is kept, because their weights multiply it.
    lazy_gradients : gradients exist from backward to the update only, not in a buffer.
    gathered_inputs : tensor parallel ranks keep the gathered input of a product.
    narrow_inputs : inputs of 8-bit products are kept in 8 bits.
    overlap_buffers : hidden states that tensor parallel ranks keep to gather into and to sum up in beside products.
    last_output : recomputation of every second product keeps the output of a layer's last one.
    temporary_bytes : a parameter that Adam updates, while it does.
    gathered_layers : layers whose weights are gathered at a time with sharded weights.
    stream_pools : gathered weights, reduced gradients and their inputs have pools of the allocator for themselves.
    offloads : machines, as shell patterns, on which activations that do not fit go to the memory of a host that NVLink
        joins, with sharded weights.
    fragmentation : most that the allocator reserves beside what is in use, as a share.
    """

    sources: dict[str, str] = {}
    weight_bytes: float = 2.0
    gradient_bytes: float = 4.0
    master_bytes: float = 4.0
    moment_bytes: float = 4.0
    cast_bytes: float = 0.0
    narrow_weights: bool = False
    loss_bytes: float = 14.0
    parallel_loss_bytes: float = 14.0
    norm_copies: bool = False
    gate_copies: bool = False
    expert_outputs: bool = False
    lazy_gradients: bool = False
    gathered_inputs: bool = False
    narrow_inputs: bool = False
    overlap_buffers: tuple[int, int] = (0, 0)
    last_output: bool = True
    temporary_bytes: float = 0.0
    gathered_layers: int = 2
    stream_pools: bool = False
    offloads: tuple[str, ...] = ()
    fragmentation: float = 0.1
