"""What the host takes to dispatch a call, by who calls: a framework, Python that launches a kernel, a compiled program.

Tables tell the dispatch of the releases in `MEASURED`, each on the hosts of its machines. What other callers take was
read off published times between events: the measured time minus the kernel's predicted one, for kernels below 60 us,
the median of each source (`examples/published`).
"""

from __future__ import annotations

from typing import NamedTuple

from perfmodel.prediction.conditions import Conditions

#: library -> the release whose dispatch the tables measured, each on the host of its machine: NeuSight @ 6945927d9afc,
#: and aiconfigurator @ 095f58a51c4c. Rows of that release are taken to be from such a host, all others from another
MEASURED = {"torch": (2, 1), "vllm": (0, 24)}
#: whose rows the shipped tables of dispatch were fitted to, as their sources say
SHIPPED = "NeuSight"
#: engines, whose other kernels are operators of PyTorch in C++; and families of calls that prepare more than a launch:
#: the dispatch of their tables, or of families like them, holds
_ENGINES = ("vllm", "sglang", "trtllm", "llmservingsim", "vidur")
_PREPARED = ("gemm_fp8_block", "attention_prefill", "attention_decode")
#: libraries that compiled programs call, whose launch takes little more than the driver does
_COMPILED = (
    "cublas", "cublaslt", "cutlass", "cub", "cudaMemcpy", "rocblas", "hipblas", "hipblaslt", "rocprim", "hipcub", "ck",
)  # fmt: skip
#: kernels whose caller is not told: a program of their author, or his extension of a framework
_OF_ITS_AUTHOR = ("own", "cuda", "hip")


class Dispatch(NamedTuple):
    """What a host takes to dispatch one call.

    Attributes
    ----------
    host_s : the whole call [s].
    hidden_s : its end, which overlaps with the kernel [s].
    """

    host_s: float
    hidden_s: float


#: PyTorch since 2.2, whose operators dispatch in C++ before a kernel starts: before it starts pass 2 to 12 us at seven
#: sources (releases 2.2 to 2.12, five kinds of machines), 4 in the middle; the shortest calls take 13.5 to 16 us
TORCH = Dispatch(14e-6, 9e-6)
#: kernels that Python launches itself, as Triton and FlashAttention do: 15 to 32 us at five of seven sources
PYTHON = Dispatch(26e-6, 8e-6)
#: calls of a compiled program: 2 us at one source of 21 rows, 11 to 18 at three of five
COMPILED = Dispatch(7e-6, 2e-6)
#: the same, or an extension of a framework: 4 and 8 us at two sources of programs, 26 at one of extensions
OF_ITS_AUTHOR = Dispatch(8e-6, 2e-6)


def is_measured(conditions: Conditions) -> bool:
    """Whether tables tell the dispatch of the caller's release."""
    caller = conditions.library.partition("_")[0]  # "vllm_triton" is Triton's kernel, as vLLM calls it
    return MEASURED.get(caller) == conditions.release[:2]


def is_of_its_author(conditions: Conditions) -> bool:
    """Whether a kernel may be called by a compiled program as well as by Python."""
    return conditions.caller in _OF_ITS_AUTHOR


def dispatch_of(conditions: Conditions, family: str = "") -> Dispatch | None:
    """Return the dispatch of callers that no table measured; None where the tables' holds.

    Calls of no library are those of today's PyTorch.
    """
    caller = conditions.caller
    if is_measured(conditions):
        return None
    if caller in _ENGINES:
        launched = PYTHON if "triton" in conditions.library else TORCH
        return None if family in _PREPARED else launched
    if caller in ("", "torch"):
        return None if conditions.is_before(2, 2) else TORCH
    if caller in _COMPILED:
        return COMPILED
    return OF_ITS_AUTHOR if is_of_its_author(conditions) else PYTHON
