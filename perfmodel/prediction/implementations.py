"""The names of libraries: of implementations, as measurement tables have them, and as callers ask for them.

An implementation is "library-version/detail" or "library-detail". All names of libraries are read here, so that what a
table says of a row is also what ``--library`` asks for.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from perfmodel.errors import UsageError

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
#: a name of a library, and one with a release that follows neither a hyphen nor ==: "torch@2.4", "torch-v2.4"
_NAME, _OTHERWISE = re.compile(r"[\w./+-]*"), re.compile(r"([\w./+-]+?)(?:\s*[=@~<>!: ]+\s*v?|-v)(\d[\w.+]*)")
#: how package managers write a version, which a hyphen stands for in the names of tables
_PINNED = "=="
#: who measured a library, as tables name it behind the library
_MEASURED_BY = frozenset({"vllm-2024", "llmservingsim"})
#: backends of torch's scaled_dot_product_attention, as our benchmarks name them -> the kernel within the library
BACKENDS = {"torch.sdpa.flash": "fa2", "torch.sdpa.efficient": "efficient", "torch.sdpa.cudnn": "cudnn"}
#: libraries whose release is a fact of the device in the context of a record; those of plugins are its ``libraries``
_OF_DEVICE = ("torch", "triton")


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
    name, _, detail = implementation.replace(_PINNED, "-").partition("/")
    library, _, kernel = name.partition("-")
    if version := version_of(name):
        kernel = kernel.removeprefix(version).removeprefix("-")
    if backend := BACKENDS.get(kernel.removesuffix(".backward")):
        return f"{library}/{backend}"
    own = KERNELS.get(detail or kernel)
    return f"{library}_{own}" if own else library


def version_of(implementation: str) -> str:
    """Return the version of an implementation's library: "2.1" of "torch-2.1-cudnn"; "" where the name has none."""
    _, *details = implementation.replace(_PINNED, "-").partition("/")[0].split("-")
    return details[0] if details and details[0][:1].isdigit() else ""


def named(library: str, version: str) -> str:
    """Return a library with its version, where it has one, as callers ask for it.

    >>> named("torch/fa2", "2.11.0"), named("vllm", ""), named("", "")
    ('torch/fa2-2.11.0', 'vllm', '')
    """
    return "-".join(filter(None, (library, version)))


def check_library(name: str, place: str = "library") -> str:
    """Return the name of a library as it is, and refuse a release that `asked_for` would not find in it.

    Raises
    ------
    UsageError
        When the release follows another sign than a hyphen or ==, or a character is in no name of a library.

    >>> check_library("torch==2.4"), check_library("trtllm-1.3.0rc10/torch_flow")
    ('torch==2.4', 'trtllm-1.3.0rc10/torch_flow')
    """
    found = _OTHERWISE.fullmatch(name.replace(_PINNED, "-"))
    if found is None and _NAME.fullmatch(name.replace(_PINNED, "-")):
        return name
    library, release = found.groups() if found else ("torch", "2.4")
    remedy = f"Write {library}-{release} or {library}=={release}."
    raise UsageError(f"{name!r} is no name of a library and its release.", place=place, remedy=remedy)


def releases_of(context: Mapping[str, Any]) -> dict[str, str]:
    """Return the library of kernels -> its release, as far as the context of a record says what ran them.

    >>> releases_of({"device": {"torch": "2.11.0+cu130", "triton": "3.6.0"}, "libraries": {"vllm": "0.24.0"}})
    {'torch': '2.11.0', 'triton': '3.6.0', 'vllm': '0.24.0'}
    """
    facts = (context.get(key) for key in ("device", "libraries"))
    device, others = (fact if isinstance(fact, dict) else {} for fact in facts)
    stated = {name: device.get(name) for name in _OF_DEVICE} | others
    return {name: text.partition("+")[0] for name, text in stated.items() if isinstance(text, str) and text}


def with_release(implementation: str, releases: Mapping[str, str]) -> str:
    """Return an implementation with the release of its library, where it names none.

    >>> with_release("torch-torch.matmul", {"torch": "2.11.0"}), with_release("cublas", {"torch": "2.11.0"})
    ('torch-2.11.0-torch.matmul', 'cublas')
    """
    library, hyphen, kernel = implementation.partition("-")
    release = "" if version_of(implementation) else releases.get(library, "")
    return f"{library}-{release}{hyphen}{kernel}" if release else implementation


def asked_for(name: str) -> tuple[str, str]:
    """Return the library and the version that a caller names: as tables do, or a kernel within a library.

    What stands behind a hyphen and is neither a version nor a kernel that is known is part of the library's name:
    nobody measured "vllm-flashinfer".

    >>> asked_for("trtllm-1.3.0rc10/torch_flow"), asked_for("torch-2.1"), asked_for("torch/fa2-2.11")
    (('trtllm', '1.3.0rc10'), ('torch', '2.1'), ('torch/fa2', '2.11'))
    >>> asked_for("torch-2.7/fa2"), asked_for("torch-torch.sdpa.flash"), asked_for("vllm-flashinfer")
    (('torch/fa2', '2.7'), ('torch/fa2', ''), ('vllm-flashinfer', ''))
    >>> asked_for("torch==2.4"), asked_for("torch/fa2==2.11")
    (('torch', '2.4'), ('torch/fa2', '2.11'))
    """
    name = name.replace(_PINNED, "-")
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
