"""What the names of kernels, copies and runtime calls say: the same in the traces of every profiler."""

from __future__ import annotations

import re

from perfmodel.profile import timeline

#: names of the kernels of NVIDIA's and AMD's collectives, DeepEP's, NVSHMEM's and PyTorch's symmetric-memory ones
_COLLECTIVE = re.compile(
    r"\b(?:ms)?r?ccl(?:Dev)?Kernel|\bnccl|mscclKernel|nvshmem|symm_mem|cross_device_reduce|(?:one|two)_shot_all_reduce"
    r"|one_shot_allreduce|two_shot_allreduce|multimem_all_reduce|intranode::(?:dispatch|combine)|"
    r"internode::(?:dispatch|combine)"
)
_MEMCPY = re.compile(r"\bmemcpy\b|copybuffer", re.IGNORECASE)
_MEMSET = re.compile(r"\bmemset\b|fillbuffer", re.IGNORECASE)
_DIRECTIONS = (
    (re.compile(r"HtoD|Host-to-Device|HostToDevice", re.IGNORECASE), timeline.HOST_TO_DEVICE),
    (re.compile(r"DtoH|Device-to-Host|DeviceToHost", re.IGNORECASE), timeline.DEVICE_TO_HOST),
    (re.compile(r"[DP]to[DP]|(?:Device|Peer)-to-(?:Device|Peer)|(?:Device|Peer)To(?:Device|Peer)", re.IGNORECASE),
     timeline.DEVICE_TO_DEVICE),
)  # fmt: skip
_COPY = re.compile(r"mem(?:cpy|set)", re.IGNORECASE)
#: kernels that round fp32 inputs to TF32 for the tensor cores: cuBLAS and cuDNN say tf32, CUTLASS the shape of its
#: matrix instruction, m16n8k8 with fp32 accumulation ("s1688gemm"); AMD calls the format xf32
_TF32 = re.compile(r"tf32|xf32|(?<![a-z\d])s1688(?!.*(?:f16|bf16|half))", re.IGNORECASE)
#: template arguments and parts of names of libraries -> PyTorch's name of the dtype
_DTYPES = (
    (re.compile(r"\bc10::BFloat16\b|__nv_bfloat16|__hip_bfloat16"), "c10::BFloat16"),
    (re.compile(r"\bc10::Half\b|\b__half\b|hgemm"), "c10::Half"),
    (re.compile(r"\bfloat\b|sgemm|scudnn"), "float"),
    (re.compile(r"\bdouble\b|dgemm"), "double"),
    (re.compile(r"\blong\b"), "long"),
)
#: kernels that only move data know the size of an element: the dtype is one of that size
_OPAQUE = re.compile(r"OpaqueType<([1248])u?>")
_OPAQUE_DTYPES = {"1": "char", "2": "c10::Half", "4": "float", "8": "double"}


def gpu_category(category: str, name: str) -> int:
    """Return the `GpuEvents.category` of an event: "kernel", "gpu_memcpy" or "gpu_memset" by its trace and its name."""
    if "memcpy" in category:
        return timeline.MEMCPY
    if "memset" in category:
        return timeline.MEMSET
    if _COLLECTIVE.search(name):
        return timeline.COMMUNICATION
    # ROCm writes some copies as kernels: "__amd_rocclr_copyBuffer", "__amd_rocclr_fillBufferAligned"
    if name.startswith("__amd_rocclr_"):
        return timeline.MEMCPY if _MEMCPY.search(name) else timeline.MEMSET if _MEMSET.search(name) else timeline.KERNEL
    return timeline.KERNEL


def copy_direction(name: str) -> int:
    """Return the `GpuEvents.direction` of a copy by its name ("Memcpy HtoD (Pageable -> Device)"), or -1.

    >>> copy_direction("[CUDA memcpy Device-to-Host]") == timeline.DEVICE_TO_HOST
    True
    """
    return next((code for pattern, code in _DIRECTIONS if pattern.search(name)), -1)


def copy_pinned(name: str) -> int:
    """Return 1 where a copy's name says that the host's side is pinned, 0 for pageable, else -1."""
    return 1 if "Pinned" in name else 0 if "Pageable" in name else -1


def api_category(name: str) -> int:
    """Return the `ApiCalls.category` of a call by its name ("cudaLaunchKernel", "hipMemcpyAsync")."""
    if "Synchronize" in name:
        return timeline.SYNC
    if _COPY.search(name):
        return timeline.COPY
    return timeline.LAUNCH if "Launch" in name else timeline.OTHER


def is_graph_launch(name: str) -> bool:
    """Whether a call starts a whole graph of kernels ("cudaGraphLaunch", "hipGraphLaunch")."""
    return "GraphLaunch" in name


def uses_tf32(name: str) -> bool:
    """Whether a matrix kernel for fp32 tensors rounds its inputs to TF32.

    >>> uses_tf32("ampere_sgemm_128x64_nn"), uses_tf32("cutlass_80_tensorop_s1688gemm_128x128_16x5_nn_align4")
    (False, True)
    """
    return _TF32.search(name) is not None


def kernel_dtype(name: str) -> str:
    """Return the dtype that a kernel works on, under PyTorch's name, as far as its own name says so, or empty.

    >>> kernel_dtype("void at::native::vectorized_elementwise_kernel<4, at::native::AddFunctor<float> >(int)")
    'float'
    """
    if opaque := _OPAQUE.search(name):
        return _OPAQUE_DTYPES[opaque.group(1)]
    return next((dtype for pattern, dtype in _DTYPES if pattern.search(name)), "")
