"""What an optimizer keeps of each parameter [B]."""

from __future__ import annotations

#: 8-bit moments have one fp32 scale for each block of 256 (Dettmers et al. 2022, arXiv 2110.02861; bitsandbytes)
_BLOCK = 256
_SCALE_BYTES = 4.0


def state_bytes(optimizer: str, master_bytes: float, moment_bytes: float, outer_share: float) -> float:
    """Return the bytes that the optimizer keeps a parameter: its copy of the weight and its moments.

    adam: two moments; adam-8bit: two moments of one byte with a scale for 256; sgd: one moment, the momentum; muon: one
    moment for the matrices of layers, two as Adam for embedding and head (Jordan et al. 2024, Keller Jordan's Muon);
    none: nothing.

    Parameters
    ----------
    optimizer : one of `perfmodel.training.plan.OPTIMIZERS`.
    master_bytes, moment_bytes : of the copy that it updates, and of one moment, a parameter.
    outer_share : share of embedding and head in the parameters.
    """
    if optimizer == "none":
        return 0.0
    moments = {
        "adam": 2.0 * moment_bytes,
        "adam-bf16": 4.0,
        "adam-8bit": 2.0 * (1.0 + _SCALE_BYTES / _BLOCK),
        "sgd": moment_bytes,
        "muon": moment_bytes * (1.0 + outer_share),
    }
    return master_bytes + moments[optimizer]


def root_bytes(optimizer: str, wide_bytes: float, outer_share: float) -> float:
    """Return the bytes a trained parameter of the roots of second moments that an update has all at once.

    adam: as wide as its moments, in 16 bits with adam-bf16; muon: of embedding and head, which Adam updates; sgd and
    none take no root, and the kernel of adam-8bit (bitsandbytes) keeps it in registers.

    Parameters
    ----------
    optimizer : one of `perfmodel.training.plan.OPTIMIZERS`.
    wide_bytes : of Adam's roots in fp32; 0 where a kernel keeps them in registers, too.
    outer_share : share of embedding and head in the parameters.
    """
    shares = {"adam": 1.0, "adam-bf16": 0.5, "muon": outer_share}
    return wide_bytes * shares.get(optimizer, 0.0)
