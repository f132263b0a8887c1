"""The gradients of attention: the blocks of the forward pass, with five products in place of two.

The constants are those of the forward pass on the machine; one more, and what further kernels start for and move, are
read off own rows (H100 and H200, torch 2.11: FlashAttention-2, memory-efficient and cuDNN).
"""

from __future__ import annotations

import dataclasses
from typing import cast

from perfmodel.core.dtypes import dtype_bytes
from perfmodel.core.work import Number, where
from perfmodel.operators.attention import Attention
from perfmodel.operators.base import Operator
from perfmodel.prediction.conditions import Conditions
from perfmodel.prediction.latency.attention import prefill
from perfmodel.prediction.latency.attention.beyond import XFORMERS_GRADIENTS
from perfmodel.prediction.latency.attention.libraries import kernel_of
from perfmodel.prediction.latency.attention.terms import MASK
from perfmodel.prediction.latency.family import Constant, Family, Values, scaled
from perfmodel.prediction.latency.machine import Machine
from perfmodel.prediction.latency.terms import HBM, LAUNCH, Terms

#: start of further kernels: the sums of o and do of a row, and the conversion of the gradients from fp32 [s]
FURTHER_S = 2 * 2e-6
#: kernels that write the gradients of keys and values for each query head, and add them up over the heads of a group
#: (mha_bwd in csrc/flash_attn/flash_api.cpp of github.com/Dao-AILab/flash-attention; PyTorch does so for cuDNN, too)
EXPANDING = ("fa2", "cudnn")
#: start of the two sums [s]; share of the bandwidth that these reach, whose rows are strided: chosen with 18 calls of
#: an H200 with groups in view (`examples/records`, 2026-11-27), which are 11 % off (24 without the sums)
SUMS_S, SUMMED = 2 * 2.5e-6, 0.45
#: bytes of an element of Q that two further kernels move: one reads o and do in 16 bits, the other dq in fp32 and
#: writes it in 16; and the share of the bandwidth that they reach (profiles of both backends on an H200, torch 2.11)
FURTHER_BYTES, FURTHER_STREAM = 10.0, 0.8
#: 1.06, 1.1 and 1.15 leave 8.8, 8.7 and 9.3 % of 128 calls of an H100 and an H200, in view (`examples/records`)
CONSTANTS = (Constant("slower", "", 1.1, 1.0, 2.0, 0.15, "rate of the forward pass over that of the gradients"),)


def formula(op: Operator, machine: Machine, c: Values, conditions: Conditions) -> Terms:
    """Return the terms of the forward pass, its blocks ``slower`` times as long for their FLOP, its traffic as counted.

    Further kernels start before and after; some add up what the query heads of a group have for keys that they share.
    """
    attention = cast(Attention, op)
    forward = attention.changed(backward=False)
    values = prefill.values_on(machine, conditions.library, op.dtype)
    # no kernel of gradients splits keys
    kernel = dataclasses.replace(kernel_of(forward, machine, conditions.library), splits=False)
    terms = scaled(prefill.formula(forward, machine, values, conditions, kernel), values)
    traffic = op.work().bytes / forward.work().bytes
    factors = {HBM: traffic, LAUNCH: 1.0, MASK: 0.0}  # the forward pass has made a mask; the rest is of blocks
    usual = op.flop() / forward.flop() * c["slower"]
    adds = {term: value * factors.get(term, usual) for term, value in terms.adds.items()}
    adds[LAUNCH] = adds[LAUNCH] + FURTHER_S
    moved = FURTHER_BYTES * attention.batch * attention.heads * attention.seq_q * attention.head_dim
    adds[HBM] = adds[HBM] + moved / (FURTHER_STREAM * machine.bandwidth_bytes_per_s)
    if kernel.name in EXPANDING:
        starts_s, moved_s = _group_sums(forward, machine)
        adds[LAUNCH], adds[HBM] = adds[LAUNCH] + starts_s, adds[HBM] + moved_s
    return Terms(adds, {term: value * factors.get(term, usual) for term, value in terms.alone.items()})


def _group_sums(op: Attention, machine: Machine) -> tuple[Number, Number]:
    """Return what adding up the gradients of keys and values over the heads of a group takes: starts and traffic [s].

    Those of each query head are written and read in the dtype of the inputs; no sums are needed without groups.
    """
    grouped = op.heads > op.kv_heads
    expanded = 2.0 * op.batch * op.heads * op.seq_kv * op.head_dim * dtype_bytes(op.dtype)
    moved_s = 2.0 * expanded / (SUMMED * machine.bandwidth_bytes_per_s)
    return where(grouped, SUMS_S, 0.0), where(grouped, moved_s, 0.0)


def applies(op: Attention, machine: Machine, library: str) -> bool:
    """Whether it is a backward pass."""
    return op.backward


BACKWARD = Family(
    "attention_backward",
    CONSTANTS,
    formula,
    prefill.PREFILL.terms,
    applies,
    like=prefill.PREFILL,
    unlike=0.1,  # twelve rows of an H100 leave 0.09
    doubts=(XFORMERS_GRADIENTS,),
)
