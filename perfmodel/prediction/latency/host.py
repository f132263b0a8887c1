"""Sorts, selections and sampling on a CPU: instructions for each element, not bytes, set their time.

Nothing is fitted: the constants are single measurements, of torch 2.14 and numpy on one core of a Xeon of 2.1 GHz.
"""

from __future__ import annotations

import numpy as np

from perfmodel.core.work import Number
from perfmodel.operators.base import Operator
from perfmodel.operators.sampling import Sampling
from perfmodel.operators.sort import Sort
from perfmodel.operators.topk import Topk
from perfmodel.prediction.ceilings import launch_time
from perfmodel.prediction.conditions import Conditions
from perfmodel.prediction.latency.family import Family, Values
from perfmodel.prediction.latency.machine import Machine
from perfmodel.prediction.latency.terms import CEILING_TERMS, LAUNCH, MATH, Terms, ceiling_term

SERVES = {"host": ("sort", "topk", "sampling")}

#: time of one key and level of a sort on one core [s], t = c n log2 n: of comparison sorts that are stable and move an
#: index with each key (torch.sort), and of AVX-512 quicksort of keys alone (numpy.sort): 96 ms and 3.5 ms for 2^20 keys
STABLE_S, AVX512_S = 4.6e-9, 0.17e-9
#: time of one element on one core [s], of torch.topk with k = 50, and of numpy.partition: 3.2 and 1.4 ms for 2^20
HEAP_S, PARTITION_S = 2.5e-9, 1.2e-9
#: time of one exponential random number, and of one exponential or logarithm, on one core [s]: torch's exponential_
#: takes 148 ms for 64 rows of 128,256
RANDOM_S, EXPONENTIAL_S = 18e-9, 1e-9
#: time of a call that does next to nothing, of numpy or torch [s]
CALL_S = 1e-6


def sort_s(op: Sort) -> Number:
    """Return the time of torch.sort, which is stable and moves indices, whatever algorithm a GPU would take [s]."""
    return STABLE_S * op.rows * op.cols * np.maximum(np.log2(op.cols), 1.0)


def arithmetic_s(op: Operator) -> Number:
    """Return the time of the instructions of a call on one core [s]."""
    if isinstance(op, Sort):
        return sort_s(op)
    if isinstance(op, Topk):
        return sort_s(op.sorting()) if op.algorithm == "sort" else HEAP_S * op.rows * op.cols
    assert isinstance(op, Sampling)
    logits = 1.0 * op.rows * op.vocab
    if op.algorithm == "top_k":
        return HEAP_S * logits + RANDOM_S * op.rows * op.kept()
    if op.algorithm == "top_p":
        return sort_s(Sort(rows=op.rows, cols=op.vocab)) + RANDOM_S * logits
    return (RANDOM_S + EXPONENTIAL_S) * logits


def formula(op: Operator, machine: Machine, c: Values, conditions: Conditions) -> Terms:
    """Return the terms of t = call + instructions + compulsory bytes / W [s]."""
    work = op.work()
    assert machine.hardware is not None, "a CPU has a specification"
    rate = machine.hardware.main_memory.sustained_bytes_per_s or machine.bandwidth_bytes_per_s
    stream = (work.bytes - work.repeated_bytes) / rate
    arithmetic = arithmetic_s(op)
    memory = ceiling_term(machine.hardware.main_memory.name)
    adds = {MATH: arithmetic, memory: stream, LAUNCH: max(CALL_S, launch_time(machine.hardware))}
    return Terms(adds, {MATH: arithmetic, memory: stream})


def basis(op: Operator, machine: Machine, terms: Terms) -> str:
    """Return where the constants come from."""
    return "a time for each element, measured on one core of another CPU"


FAMILY = Family("host", (), formula, (*CEILING_TERMS, LAUNCH), basis=basis, on_cpu=True)
FAMILIES = (FAMILY,)
