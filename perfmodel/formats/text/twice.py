"""Tables that list a framework's operators and also the kernels which these launched."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence

from perfmodel.core.units import format_si
from perfmodel.profile.profile import ProfileEntry

#: "aten::mm", "c10d::allreduce_", "flash_attn::_flash_attn_forward": a namespace, and neither blank nor argument
_OPERATOR = re.compile(r"[a-z]\w*::\w+(?:\.\w+)?")
_KERNEL = re.compile(
    r"void .*|.*[<(].*|.*(?:_kernel|gemm|nvjet|cutlass|triton_|xmma|cudnn).*|(?:mem(?:cpy|set)|nccl).*", re.I
)
#: two sums of the same time differ by what runs outside of operators
_SAME = 0.1


def without_kernels(entries: Sequence[ProfileEntry]) -> tuple[list[ProfileEntry], tuple[str, ...]]:
    """Return the entries without the kernels, where these stand for the same time as the operators beside them.

    Returns
    -------
    The entries that are left, and a note: what was left out, or, where operators and kernels are both listed but
    do not add up to the same, that their times may count twice.
    """
    ops = [entry for entry in entries if _OPERATOR.fullmatch(entry.name)]
    kernels = [entry for entry in entries if not _OPERATOR.fullmatch(entry.name) and _KERNEL.fullmatch(entry.name)]
    if not ops or not kernels:
        return list(entries), ()
    ops_s, kernels_s = (math.fsum(entry.time_s for entry in group) for group in (ops, kernels))
    sums = f"{format_si(ops_s, 's')} in {len(ops)} operators, {format_si(kernels_s, 's')} in {len(kernels)} kernels"
    if abs(ops_s - kernels_s) > _SAME * max(ops_s, kernels_s):
        return list(entries), (
            f"Operators and kernels are both listed ({sums}): where one launched the other, time counts twice.",
        )
    kept = [entry for entry in entries if entry not in kernels]
    return kept, (f"Operators and their kernels are both listed ({sums}): only the operators are counted.",)
