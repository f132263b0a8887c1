"""Attention: the family of many queries (prefill), and that of one or a few (decode)."""

from __future__ import annotations

from perfmodel.analysis.latency import attention_decode, attention_prefill
from perfmodel.analysis.latency._base import Family

PREFILL = Family("attention_prefill", attention_prefill.CONSTANTS, attention_prefill.terms)
DECODE = Family("attention_decode", attention_decode.CONSTANTS, attention_decode.terms)
