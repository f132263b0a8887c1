"""The terms that only attention has."""

from __future__ import annotations

from perfmodel.core.vocabulary import Limiter
from perfmodel.prediction.latency.terms import Term

SOFTMAX = Term("softmax", Limiter.COMPUTE, "exponentials and running sums of the scores")
MASK = Term("mask", Limiter.LAUNCH, "kernels that make the tensor of a mask")
KV_WRITE = Term("rope and kv write", Limiter.HBM, "rotating the new keys and writing them to the cache")

#: launches of a call without the pass that turns and writes keys, over those with it (assumed: no row is without)
WITHOUT_WRITE = 0.7
