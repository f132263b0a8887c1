"""Values of another width than keys, as those of DeepSeek's prompts: 128 columns beside 192."""

from __future__ import annotations

from collections.abc import Callable

from perfmodel.core.work import Number, maximum
from perfmodel.operators.attention import Attention
from perfmodel.prediction.latency.attention.kernels import Kernel
from perfmodel.prediction.latency.attention.terms import MASK, SOFTMAX
from perfmodel.prediction.latency.terms import LAUNCH, Terms

#: terms that have nothing to do with the columns of a head
_ALIKE = (LAUNCH, SOFTMAX, MASK)


def by_width(op: Attention, kernel: Kernel, equal: Callable[[Attention], Terms]) -> Terms:
    """Return the terms of a call whose values have e columns and whose keys d, given those of a call with d for both.

    Products and bytes are (d + e) / (2 d) of those. A kernel that has one width for both pads the narrower one.

    Parameters
    ----------
    op : the call, with a width of its values.
    kernel : the kernel that serves it.
    equal : operator -> terms, of calls whose values are as wide as their keys.
    """
    keys, values = 1.0 * op.head_dim, 1.0 * op.value_columns
    share: Number = (keys + values) / (2.0 * keys) if kernel.own_values else maximum(keys, values) / keys
    terms = equal(op.changed(value_dim=0))
    adds, alone = (
        {term: time if term in _ALIKE else share * time for term, time in part.items()}
        for part in (terms.adds, terms.alone)
    )
    return Terms(adds, alone)
