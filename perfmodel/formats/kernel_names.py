"""What the names of kernels, copies and runtime calls tell, in the output of every profiler."""

from __future__ import annotations

import functools
import re

from perfmodel.core.vocabulary import EventKind
from perfmodel.formats.exchange_names import names_exchange
from perfmodel.profile.timeline import CallKind

#: why an entry has no operator where the profiler records kernel names but no shapes
NO_SHAPES = "the profiler does not record shapes"

#: names whose kind is kept: a trace repeats a few hundred, each of which takes up to 0.1 ms to look at
_MOST_NAMES = 4096
_STARTS_AS_COPY = re.compile(r"[\[ ]*(?:cuda |hip )?(mem(?:cpy|set))", re.IGNORECASE)
#: copies of rocprofv3 ("MEMORY_COPY_HOST_TO_DEVICE") and of rocprof ("CopyHostToDevice")
_COPY_OF_ROCM = re.compile(r"MEMORY_COPY_[A-Z]|Copy(?:Host|Device)To(?:Host|Device)")
_MEMCPY = re.compile(r"\bmemcpy\b|copybuffer", re.IGNORECASE)
_MEMSET = re.compile(r"\bmemset\b|fillbuffer", re.IGNORECASE)
_COPY = re.compile(r"mem(?:cpy|set)", re.IGNORECASE)
#: calls that wait, of CUDA, HIP and Level Zero, and of SYCL's runtime (oneAPI's Unified Runtime, once its plugins)
_WAIT = re.compile(r"Synchronize|^(?:ur|pi)(?:QueueFinish|Events?Wait)$")
#: PyTorch's kernels that compute the address of each element: CUDALoops.cuh takes them where an operand has gaps or is
#: broadcast (on AMD, with other names, also to convert dtypes), Shape.cu where tensors that are joined have gaps
_ADDRESSES = re.compile(
    r"::elementwise_kernel<|elementwise_kernel_manual_unroll<[\d, ]*at::native::gpu_kernel_impl_nocast|"
    r"CatArrayBatchedCopy(?:_contig)?<"
)
#: one of these is in each name that `_ADDRESSES` finds; to look for them in a long name takes a tenth of its time
_IN_ADDRESSES = ("::elementwise_kernel<", "elementwise_kernel_manual_unroll<", "CatArrayBatchedCopy")
#: template arguments and name parts of libraries -> PyTorch's name of the dtype
_DTYPES = (
    (re.compile(r"\bc10::BFloat16\b|__nv_bfloat16|__hip_bfloat16"), "c10::BFloat16"),
    (re.compile(r"\bc10::Half\b|\b__half\b|hgemm"), "c10::Half"),
    (re.compile(r"\bfloat\b|sgemm|scudnn"), "float"),
    (re.compile(r"\bdouble\b|dgemm"), "double"),
    (re.compile(r"\blong\b"), "long"),
)
#: kernels that only move data name the size of an element; the dtype is one of that size
_OPAQUE = re.compile(r"OpaqueType<([1248])u?>")
_OPAQUE_DTYPES = {"1": "char", "2": "c10::Half", "4": "float", "8": "double"}


@functools.lru_cache(_MOST_NAMES)
def event_kind(name: str, recorded_as: str = "") -> EventKind:
    """Return the kind of a piece of GPU work.

    Parameters
    ----------
    name : the name that the profiler gave it.
    recorded_as : category in the trace ("kernel", "gpu_memcpy", "gpu_memset"). Without a category, work is a copy
        if its name starts like one.

    >>> event_kind("[CUDA memcpy HtoD]"), event_kind("ncclDevKernel_SendRecv(x)")
    ('memcpy', 'communication')
    """
    if not recorded_as and (copy := _STARTS_AS_COPY.match(name)):
        recorded_as = copy.group(1).lower()
    if "memcpy" in recorded_as or (not recorded_as and _COPY_OF_ROCM.match(name)):
        return EventKind.MEMCPY
    if "memset" in recorded_as:
        return EventKind.MEMSET
    if names_exchange(name):
        return EventKind.COMMUNICATION
    # ROCm writes some copies as kernels: "__amd_rocclr_copyBuffer", "__amd_rocclr_fillBufferAligned"
    if name.startswith("__amd_rocclr_"):
        if _MEMCPY.search(name):
            return EventKind.MEMCPY
        return EventKind.MEMSET if _MEMSET.search(name) else EventKind.KERNEL
    return EventKind.KERNEL


@functools.lru_cache(_MOST_NAMES)
def call_kind(name: str) -> CallKind:
    """Return what a call of the runtime does, from its name ("cudaLaunchKernel", "hipMemcpyAsync")."""
    if _WAIT.search(name):
        return CallKind.SYNC
    if _COPY.search(name):
        return CallKind.COPY
    return CallKind.LAUNCH if "Launch" in name else CallKind.OTHER


def is_graph_launch(name: str) -> bool:
    """Whether a call starts a whole graph of kernels ("cudaGraphLaunch", "hipGraphLaunch")."""
    return "GraphLaunch" in name


def computes_addresses(name: str) -> bool:
    """Whether a kernel of PyTorch computes the address of each element, in place of loading whole vectors.

    >>> computes_addresses("void at::native::elementwise_kernel<128, 4, at::native::gpu_kernel_impl_nocast<f> >(int)")
    True
    >>> computes_addresses("void at::native::vectorized_elementwise_kernel<4, at::native::AddFunctor<float> >(int)")
    False
    """
    return any(part in name for part in _IN_ADDRESSES) and _ADDRESSES.search(name) is not None


def kernel_dtype(name: str) -> str:
    """Return PyTorch's name of the dtype that a kernel works on, or "" if the kernel's name does not tell it.

    >>> kernel_dtype("void at::native::vectorized_elementwise_kernel<4, at::native::AddFunctor<float> >(int)")
    'float'
    """
    if opaque := _OPAQUE.search(name):
        return _OPAQUE_DTYPES[opaque.group(1)]
    return next((dtype for pattern, dtype in _DTYPES if pattern.search(name)), "")
