"""What ranks do together, from the names that c10d, NCCL, RCCL, gloo and the kernels of other libraries have.

`names_exchange` is what all readers call communication between ranks by its name; a trace of PyTorch may also say so
in the arguments of a kernel (`perfmodel.formats.torch_trace.exchanges`).
"""

from __future__ import annotations

import re

#: kernels that exchange, by the libraries that they are of. Names that a compiler made from those of operators, as
#: "triton_poi_fused_all_reduce_wait_tensor_0", are of kernels that compute, so "all_reduce" alone tells nothing
_EXCHANGES = re.compile(
    r"""
    \b(?:ms|r)?ccl(?:Dev)?Kernel | \bnccl | \bmscclpp                      # NCCL, RCCL, MSCCL, MSCCL++
    | nvshmem | rocshmem
    | symm_mem | (?:one|two)_shot_all_?reduce | multimem_all_reduce         # symmetric memory of PyTorch
    | cross_device_reduce | reduce_scatter_cross_device | aiter::allgather  # vLLM, SGLang, AITER
    | quickreduce:: | \bk?userbuffers_                                      # AMD's quick reduce; Transformer Engine
    | all_?reduce_fusion | (?:one|two)shot_?all_?reduce                     # TensorRT-LLM, FlashInfer, AITER
    | (?:intra|inter)node(?:_ll)?::(?:cached_notify|(?:cached_)?(?:notify_)?(?:dispatch|combine|barrier))  # DeepEP
    """,
    re.VERBOSE | re.IGNORECASE,
)
#: one of these is in each name that `_EXCHANGES` finds; to look for them in a long name takes a tenth of its time
_IN_EXCHANGES = (
    "ccl", "shmem", "symm_mem", "cross_device", "all_reduce", "allreduce", "allgather", "quickreduce", "userbuffers",
    "node::", "node_ll::",
)  # fmt: skip
#: what compilers write for a namespace without a name, with brackets that open no parameters or template arguments
_UNNAMED = re.compile(r"(?:\(anonymous namespace\)|<unnamed>)::")
_COMPILED = re.compile(r"triton_\w{2,5}_fused_")
#: the collective in a kernel's name: "ncclDevKernel_AllReduce_Sum_f32_RING_LL", once "ncclAllReduceRingLLKernel..."
_IN_KERNEL = re.compile(
    r"nccl(?:(?:\w*Dev)?Kernel_([A-Za-z]+)|(AllReduce|AllGather|ReduceScatter|Broadcast|SendRecv|Reduce)\w*Kernel)"
)
#: what kernels of other libraries do, by their own names: those before template arguments and parameters
_OF_OTHERS = (
    (re.compile(r"userbuffers_\w*_rs(?:_|$)"), "reduce_scatter"),  # all of them are "sum_inplace", the halves too
    (re.compile(r"userbuffers_\w*_ag(?:_|$)"), "all_gather"),
    (re.compile(r"all_?reduce|cross_device_reduce|quickreduce|sum_inplace", re.IGNORECASE), "all_reduce"),
    (re.compile(r"reduce_?scatter", re.IGNORECASE), "reduce_scatter"),
    (re.compile(r"all_?gather", re.IGNORECASE), "all_gather"),
    (re.compile(r"barrier|notify(?:_|$)", re.IGNORECASE), "barrier"),
    (re.compile(r"node(?:_ll)?::(?:cached_)?dispatch"), "dispatch"),
    (re.compile(r"node(?:_ll)?::(?:cached_)?combine"), "combine"),
    (re.compile(r"push(?:send|recv)|pull(?:send|recv)"), "send_recv"),
)
#: a name as c10d, NCCL and gloo write it, in lower case without separators -> the operator
_OPERATIONS = {
    "allreduce": "all_reduce", "allreducecoalesced": "all_reduce", "allgather": "all_gather",
    "allgatherbase": "all_gather", "allgatherintotensorcoalesced": "all_gather", "reducescatter": "reduce_scatter",
    "reducescatterbase": "reduce_scatter", "alltoall": "alltoall", "alltoallv": "alltoall",
    "alltoallbase": "alltoall", "broadcast": "broadcast", "send": "send_recv", "recv": "send_recv",
    "sendrecv": "send_recv", "reduce": "reduce", "barrier": "barrier", "gather": "gather",
    "scatter": "scatter",
}  # fmt: skip


def names_exchange(name: str) -> bool:
    """Return whether a piece of GPU work moves data between ranks, or waits for them, by its name.

    >>> names_exchange("void deep_ep::internode_ll::combine<true, 7168, 9>(void*)"), names_exchange("sgemm")
    (True, False)
    """
    lower = name.lower()
    if not any(part in lower for part in _IN_EXCHANGES) or _COMPILED.match(name):
        return False
    return _EXCHANGES.search(name) is not None


def operation(name: str) -> str:
    """Return the operator's name for a collective as c10d, NCCL or gloo writes it; other names stay.

    >>> operation("_allgather_base"), operation("AllReduce"), operation("all_reduce"), operation("gather")
    ('all_gather', 'all_reduce', 'all_reduce', 'gather')
    """
    key = re.sub(r"[^a-z]", "", name.lower())
    return _OPERATIONS.get(key, name)


def recorded_operation(collective: str, kernel: str) -> str:
    """Return the operator's name for an exchange whose record and kernel have names.

    NCCL sends and receives in one kind of kernel, also for an all-to-all, so the record decides, unless it names no
    operation, as that of several messages that were put together.

    >>> recorded_operation("all_to_allv", "ncclDevKernel_SendRecv(x)"), recorded_operation("", "ncclDevKernel_SendRecv")
    ('alltoall', 'send_recv')
    >>> recorded_operation("coalesced", "ncclDevKernel_SendRecv(x)")
    'send_recv'
    """
    by_record, by_kernel = operation(collective), kernel_operation(kernel)
    if by_record in _OPERATIONS.values() or (by_record and by_kernel not in _OPERATIONS.values()):
        return by_record
    return by_kernel


def kernel_operation(name: str) -> str:
    """Return the operator's name for a kernel that exchanges; the kernel's own name where it does not say.

    >>> kernel_operation("ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)")
    'send_recv'
    >>> kernel_operation("ncclAllGatherRingLLKernel_sum_i8(ncclColl)")
    'all_gather'
    >>> kernel_operation("void vllm::cross_device_reduce_1stage<__half, 8>(vllm::RankData*)")
    'all_reduce'
    """
    if found := _IN_KERNEL.search(name):
        return operation(found[1] or found[2])
    own = re.split(r"[<(]", _UNNAMED.sub("", name), maxsplit=1)[0]
    return next((known for pattern, known in _OF_OTHERS if pattern.search(own)), name)
