"""RMSNorm over the last axis, as serving libraries run it: a block a row that waits for its sum of squares."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, cast

from perfmodel.operators.base import Operator
from perfmodel.operators.rms_norm import RmsNorm
from perfmodel.prediction.conditions import Conditions
from perfmodel.prediction.latency.family import Family, Values
from perfmodel.prediction.latency.layer_norm import CALL_COST
from perfmodel.prediction.latency.machine import Machine
from perfmodel.prediction.latency.streams import (
    ETA,
    FEED,
    FILL,
    FRAMEWORKS,
    FUSED,
    ISSUE,
    START,
    STREAM_TERMS,
    beside_math,
    issue_s,
    stream_times,
)
from perfmodel.prediction.latency.terms import Terms

SERVES = {"rms_norm": ("rms_norm",)}

CONSTANTS = (
    # A100 and H100 have the same ratio of SM clocks to bandwidth, so that their rows do not tell instructions from
    # bandwidth: the share of the bandwidth stays near that of other streams.
    replace(ETA, default=0.82, low=0.70, high=0.95, spread=0.04, unmeasured=0.84),
    replace(START, library=True),
    FEED,
    replace(FILL, library=True),
    ISSUE,
)
#: columns whose instructions take as long as the fixed part of a row
ROW = 400.0
#: exponent of the smooth maximum of instructions and memory: a block waits for its sum, so that they overlap little
OVERLAP = 1.5


def formula(op: Operator, machine: Machine, c: Values, conditions: Conditions) -> Terms:
    """Return the terms of t = launch + ||issue rows (cols + row) / (SM f), hbm + l2||_1.5 [s]."""
    norm = cast(RmsNorm, op)
    work = op.work()
    issued = issue_s(norm.rows * (norm.cols + ROW), machine, c)
    return beside_math(issued, *stream_times(work.bytes, work.working_set_bytes, machine, c, conditions), c, OVERLAP)


def applies(op: Any, machine: Machine, library: str) -> bool:
    """Whether such a kernel runs: forward, not a framework's, which is LayerNorm's, nor one that only streams."""
    return not op.backward and library not in (*FRAMEWORKS, *FUSED)


#: engines whose kernel is FlashInfer's, of whole vectors: SGLang's sgl_kernel and TensorRT-LLM's PyTorch backend.
#: Tables have vLLM's alone, whose instructions take longer than its bytes
ALIASES = {"sglang": "flashinfer", "trtllm": "flashinfer"}
FAMILIES = (
    Family(
        "rms_norm", CONSTANTS, formula, STREAM_TERMS, applies, by_library=True, call_cost=lambda op, c: CALL_COST,
        aliases=ALIASES,
    ),
)  # fmt: skip
