"""Prompts: blocks of many queries, or the kernels of a few where these serve a short prompt sooner."""

from __future__ import annotations

from dataclasses import replace
from typing import cast

from perfmodel.core.work import anywhere, where
from perfmodel.operators.attention import Attention
from perfmodel.operators.base import Operator
from perfmodel.prediction.conditions import Conditions
from perfmodel.prediction.latency.attention import decode, prefill
from perfmodel.prediction.latency.attention.phases import may_be_few
from perfmodel.prediction.latency.family import FACTOR, Values
from perfmodel.prediction.latency.machine import Machine
from perfmodel.prediction.latency.terms import Terms, between


def formula(op: Operator, machine: Machine, c: Values, conditions: Conditions) -> Terms:
    """Return the terms of blocks (`prefill.formula`), for a short prompt those of `decode.handed_over`.

    A prompt whose keys are not written to a cache is the same work as as many queries of a cache, so that the kernels
    of these may serve it; those of a serving library, which are measured, are its own.
    """
    attention = cast(Attention, op)
    prompt = prefill.formula(op, machine, c, conditions)
    short = may_be_few(attention, machine, conditions.library)
    if not anywhere(short):
        return prompt
    values = decode.values_on(machine, conditions.library, op.dtype)
    factor = c.get(FACTOR.name, 1.0) / values.get(FACTOR.name, 1.0)
    few = decode.few_queries(op, machine, values, conditions)
    handed = decode.handed_over(few, prompt.times(factor), attention, machine, values, conditions)
    return between(prompt, handed.times(1.0 / factor), where(short, 1.0, 0.0))


PROMPTS = replace(
    prefill.PREFILL, formula=formula, terms=tuple(dict.fromkeys((*prefill.PREFILL.terms, *decode.DECODE.terms)))
)
