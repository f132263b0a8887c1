"""What a framework keeps of a parameter between its steps under a plan: weight, gradient, and optimizer's state."""

from __future__ import annotations

from perfmodel.training.optimizer_state import state_bytes
from perfmodel.training.setup import Setup

#: bytes of an element of a weight or gradient in 16 and in 32 bits
HALF, SINGLE = 2.0, 4.0


def is_wide(setup: Setup) -> bool:
    """Return whether weights are in fp32, which their gradients and moments then are, too."""
    return setup.shard.element_bytes == SINGLE


def weight_bytes(setup: Setup) -> float:
    """Return the bytes of a weight between the steps."""
    return SINGLE if is_wide(setup) else HALF if setup.narrow_weights else setup.framework.memory.weight_bytes


def gradient_bytes(setup: Setup) -> float:
    """Return the bytes of a gradient between the micro batches."""
    facts = setup.framework.memory
    return max(SINGLE, facts.gradient_bytes) if is_wide(setup) else facts.gradient_bytes


def updated_gradient_bytes(setup: Setup) -> float:
    """Return the bytes of a gradient as the optimizer takes it."""
    return HALF if setup.plan.optimizer == "adam-bf16" else gradient_bytes(setup)


def master_bytes(setup: Setup) -> float:
    """Return the bytes of the copy of a weight that the optimizer updates; 0 where it updates the weight itself."""
    return 0.0 if is_wide(setup) or setup.plan.optimizer == "adam-bf16" else setup.framework.memory.master_bytes


def optimizer_bytes(setup: Setup, outer_share: float) -> float:
    """Return what the optimizer keeps of a parameter, with some share of embedding and head in all of them [B]."""
    facts = setup.framework.memory
    moment = max(SINGLE, facts.moment_bytes) if is_wide(setup) else facts.moment_bytes
    return state_bytes(setup.plan.optimizer, master_bytes(setup), moment, outer_share)


def host_gradient_bytes(setup: Setup) -> float:
    """Return the bytes of a gradient as the CPU takes it."""
    wide = setup.framework.host.wide_gradients and master_bytes(setup)
    return SINGLE if wide else updated_gradient_bytes(setup)


def host_update_bytes(setup: Setup) -> float:
    """Return what the update of a parameter on the CPU reads and writes of the host's memory [B].

    The gradient is read, the optimizer's state read and written, and the weight written, which is read, too, where it
    has no copy in the state: 4 + 3 x 8 = 28 B of Adam in fp32, and 2 + 24 + 2 = 28 B with weights and gradients in 16
    bits; 4 + 24 = 28 B where another pass casts the weight (DeepSpeed's CPUAdam: csrc/adam/cpu_adam_impl.cpp).
    """
    master = master_bytes(setup)
    written = 0.0 if master and setup.framework.host.casts_weights else weight_bytes(setup)
    return host_gradient_bytes(setup) + 2.0 * optimizer_bytes(setup, 0.0) + written * (1.0 if master else 2.0)


def host_pass_bytes(setup: Setup) -> float:
    """Return what passes before and after that update read and write of a parameter [B].

    Gradients are read and written to scale them, 8 B in fp32, and the weight is read in fp32 and written in 16 bits, 6.
    """
    facts, master = setup.framework.host, master_bytes(setup)
    scaled = 2.0 * host_gradient_bytes(setup) if facts.scales_gradients else 0.0
    return scaled + (master + weight_bytes(setup) if facts.casts_weights and master else 0.0)
