"""Attention: many queries against their keys (prefill), one query a sequence against a KV cache (decode), gradients."""

from __future__ import annotations

from perfmodel.prediction.latency.attention.backward import BACKWARD
from perfmodel.prediction.latency.attention.decode import DECODE
from perfmodel.prediction.latency.attention.prompts import PROMPTS

SERVES = {"attention_prefill": ("attention",), "attention_decode": ("attention",), "attention_backward": ("attention",)}
FAMILIES = (PROMPTS, DECODE, BACKWARD)
