"""The latency families by name, and which of them an operator belongs to. Loaded when asked for."""

from __future__ import annotations

import functools
import importlib
from typing import Any

import numpy as np

from perfmodel.operators.base import Operator
from perfmodel.prediction.latency.family import Family
from perfmodel.prediction.latency.machine import Machine

#: family -> module:attribute. "roofline" is for operators and machines without a family of their own.
_WHERE = {
    "elementwise": "elementwise:FAMILY",
    "gemm_fp32": "gemm.families:GEMM_FP32",
    "gemm_bf16": "gemm.families:GEMM_BF16",
    "gemm_fp8": "gemm.families:GEMM_FP8",
    "layer_norm": "layer_norm:FAMILY",
    "softmax": "softmax:FAMILY",
    "reduction": "reduction:FAMILY",
    "attention_prefill": "attention.prefill:PREFILL",
    "attention_decode": "attention.decode:DECODE",
    "conv2d": "conv2d:FAMILY",
    "all_reduce": "collectives:ALL_REDUCE",
    "all_gather": "collectives:ALL_GATHER",
    "reduce_scatter": "collectives:REDUCE_SCATTER",
    "alltoall": "collectives:ALLTOALL",
    "roofline": "roofline:FAMILY",
}
#: operator -> family, where the operator alone decides
_OF_OPERATOR = {"rms_norm": "layer_norm"}


def family_names() -> tuple[str, ...]:
    """Return the names of all families."""
    return tuple(_WHERE)


@functools.cache
def family(name: str) -> Family:
    """Return a family by its name."""
    module, _, attribute = _WHERE[name].partition(":")
    found: Family = getattr(importlib.import_module(f"perfmodel.prediction.latency.{module}"), attribute)
    return found


def families_of(op: Operator, machine: Machine, kind: str) -> list[tuple[Any, Family]]:
    """Return the families of an operator, each with the mask of the points that belong to it (True for all).

    Tiles, waves and warps are a GPU's, so that a CPU (``kind="cpu"``) goes to the roofline.
    """
    if kind == "cpu":
        return [(True, family("roofline"))]
    if op.op == "gemm":
        return [(True, _gemm(machine))]
    if op.op == "attention":
        return _attention(op)
    name = _OF_OPERATOR.get(op.op, op.op)
    return [(True, family(name if name in _WHERE else "roofline"))]


def _gemm(machine: Machine) -> Family:
    from perfmodel.prediction.latency.gemm.families import family_of

    return family_of(machine)


def _attention(op: Any) -> list[tuple[Any, Family]]:
    """One query of a longer sequence is decode; a sequence of one token is a (short) prompt."""
    decode = (np.asarray(op.seq_q) == 1) & (np.asarray(op.seq_kv) > 1)
    if np.all(decode):
        return [(True, family("attention_decode"))]
    if not np.any(decode):
        return [(True, family("attention_prefill"))]
    return [(decode, family("attention_decode")), (~decode, family("attention_prefill"))]
