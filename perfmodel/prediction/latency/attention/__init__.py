"""Attention: many queries against their keys (prefill), and one query a sequence against a KV cache (decode)."""

from __future__ import annotations

from perfmodel.prediction.latency.attention.decode import DECODE
from perfmodel.prediction.latency.attention.prefill import PREFILL

SERVES = {"attention_prefill": ("attention",), "attention_decode": ("attention",)}
FAMILIES = (PREFILL, DECODE)
