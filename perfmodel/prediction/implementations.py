"""The names of libraries: of implementations, as measurement tables have them, and as callers ask for them.

An implementation is "library-version/detail" or "library-detail". All names of libraries are read here, so that what a
table says of a row is also what ``--library`` asks for.
"""

from __future__ import annotations

import re

#: a kernel with the version of its library behind a hyphen
_VERSIONED = re.compile(r"(.+)-(\d[\w.]*)")
#: kernels that differ from the others of their library as much as another library's do: they count as libraries
KERNELS = {
    "DeepGemmFp8BlockScaledMMKernel": "deepgemm",
    "FlashInferFp8BlockScaledMMKernel": "flashinfer",
    "CutlassFp8BlockScaledMMKernel": "cutlass",
    "TritonFp8BlockScaledMMKernel": "triton",
    "moe_torch_flow_min_latency": "min_latency",
    # kernels that torch.compile writes, not those of torch
    "compiled": "compiled",
}
#: who measured a library, as tables name it behind the library
_MEASURED_BY = frozenset({"vllm-2024", "llmservingsim"})
#: backends of torch's scaled_dot_product_attention, as our benchmarks name them -> the kernel within the library
BACKENDS = {"torch.sdpa.flash": "fa2", "torch.sdpa.efficient": "efficient", "torch.sdpa.cudnn": "cudnn"}


def library_of(implementation: str) -> str:
    """Return the library's name of an implementation: the part before the first hyphen or slash.

    The kernels of `KERNELS` count as libraries of their own; those of `BACKENDS` are named within theirs.

    >>> library_of("sglang_custom_allreduce-0.5.10"), library_of("torch-2.1-cudnn"), library_of("cublas")
    ('sglang_custom_allreduce', 'torch', 'cublas')
    >>> library_of("torch-2.11.0-torch.sdpa.flash")
    'torch/fa2'
    >>> library_of("vllm-0.24.0/TritonFp8BlockScaledMMKernel"), library_of("torch-torch.sdpa.flash.backward")
    ('vllm_triton', 'torch/fa2')
    """
    name, _, detail = implementation.partition("/")
    library, _, kernel = name.partition("-")
    if version := version_of(name):
        kernel = kernel.removeprefix(version).removeprefix("-")
    if backend := BACKENDS.get(kernel.removesuffix(".backward")):
        return f"{library}/{backend}"
    own = KERNELS.get(detail or kernel)
    return f"{library}_{own}" if own else library


def version_of(implementation: str) -> str:
    """Return the version of an implementation's library: "2.1" of "torch-2.1-cudnn"; "" where the name has none."""
    _, *details = implementation.partition("/")[0].split("-")
    return details[0] if details and details[0][:1].isdigit() else ""


def asked_for(name: str) -> tuple[str, str]:
    """Return the library and the version that a caller names: as tables do, or a kernel within a library.

    What stands behind a hyphen and is neither a version nor a kernel that is known is part of the library's name:
    nobody measured "vllm-flashinfer".

    >>> asked_for("trtllm-1.3.0rc10/torch_flow"), asked_for("torch-2.1"), asked_for("torch/fa2-2.11")
    (('trtllm', '1.3.0rc10'), ('torch', '2.1'), ('torch/fa2', '2.11'))
    >>> asked_for("torch-2.7/fa2"), asked_for("torch-torch.sdpa.flash"), asked_for("vllm-flashinfer")
    (('torch/fa2', '2.7'), ('torch/fa2', ''), ('vllm-flashinfer', ''))
    """
    library, _, kernel = name.partition("/")
    match = _VERSIONED.fullmatch(kernel)
    kernel, version = match.groups() if match else (kernel, version_of(library))
    if kernel and kernel not in KERNELS and (not version_of(library) or kernel in BACKENDS.values()):
        return f"{library_of(library) if version_of(library) else library}/{kernel}", version
    _, hyphen, detail = library.partition("-")
    known = version_of(name) or detail.removesuffix(".backward") in {*KERNELS, *BACKENDS, *_MEASURED_BY}
    if hyphen and not known:
        return name, ""
    return library_of(name), version_of(name)
