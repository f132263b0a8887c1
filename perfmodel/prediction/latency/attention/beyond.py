"""Calls of attention that no table has: heads of sizes between those of the kernels, and rows of a mask off vectors."""

from __future__ import annotations

from typing import Any

from perfmodel.core.vocabulary import ErrorSource
from perfmodel.operators.attention import Attention
from perfmodel.prediction.conditions import Conditions
from perfmodel.prediction.latency.family import Doubt
from perfmodel.prediction.latency.machine import Machine
from perfmodel.prediction.latency.streams import FRAMEWORKS

#: sizes of the heads of all tables are multiples of it; kernels pad others to one, or to multiples of 32, so that 80
#: columns may take as long as 96 or as 128
HEAD = 64.0
#: elements of a mask's row that PyTorch pads it to (`pad_bias`, aten/native/transformers/attention.cpp)
MASK_ROW = 8.0
#: standard deviation of ln(measured / predicted) that such calls add: that of five causal calls of PyTorch's with fewer
#: queries than keys, which 8 does not divide, on an H200 (torch 2.11.0, 2026-11-23), is 0.50, all measured slower; for
#: heads it is assumed, about half of what padding to the next size costs
DEVIATION = (0.2, 0.4, 0.4)


def _beyond(op: Attention, machine: Machine, conditions: Conditions) -> Any:
    """Whether the size of the heads is between those measured, or a framework pads the mask of a later part."""
    between = op.head_dim % HEAD != 0
    if conditions.library not in FRAMEWORKS or not op.causal:
        return between
    return between | ((op.seq_q > 1) & (op.seq_q < op.seq_kv) & (op.seq_kv % MASK_ROW != 0))


BEYOND = Doubt(ErrorSource.EXTRAPOLATION, _beyond, DEVIATION)
