"""What ranks do together, from the names that c10d, NCCL, RCCL and gloo write."""

from __future__ import annotations

import re

#: kernels of NCCL and RCCL
ON_GPU = re.compile(r"nccl(?:Dev)?Kernel_?(\w*?)_|rccl", re.IGNORECASE)
#: the collective in a kernel's name: "ncclDevKernel_AllReduce_Sum_f32_RING_LL", once "ncclAllReduceRingLLKernel..."
_IN_KERNEL = re.compile(
    r"nccl(?:(?:Dev)?Kernel_([A-Za-z]+)|(AllReduce|AllGather|ReduceScatter|Broadcast|SendRecv|Reduce)\w*Kernel)"
)
#: a name as c10d, NCCL and gloo write it, in lower case without separators -> the operator
_OPERATIONS = {
    "allreduce": "all_reduce", "allreducecoalesced": "all_reduce", "allgather": "all_gather",
    "allgatherbase": "all_gather", "allgatherintotensorcoalesced": "all_gather", "reducescatter": "reduce_scatter",
    "reducescatterbase": "reduce_scatter", "alltoall": "alltoall", "alltoallv": "alltoall",
    "alltoallbase": "alltoall", "broadcast": "broadcast", "send": "send_recv", "recv": "send_recv",
    "sendrecv": "send_recv", "reduce": "reduce", "barrier": "barrier",
}  # fmt: skip


def operation(name: str) -> str:
    """Return the operator's name for a collective as c10d, NCCL or gloo writes it; other names stay.

    >>> operation("_allgather_base"), operation("AllReduce"), operation("all_reduce"), operation("gather")
    ('all_gather', 'all_reduce', 'all_reduce', 'gather')
    """
    key = re.sub(r"[^a-z]", "", name.lower())
    return _OPERATIONS.get(key, name)


def kernel_operation(name: str) -> str:
    """Return the operator's name for a kernel of NCCL; the kernel's own name where it does not say.

    >>> kernel_operation("ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)")
    'send_recv'
    >>> kernel_operation("ncclAllGatherRingLLKernel_sum_i8(ncclColl)")
    'all_gather'
    """
    found = _IN_KERNEL.search(name)
    return operation(found[1] or found[2]) if found else name
