"""Names of kernels as people read them: of C++ the function, without namespace, return type and arguments."""

from __future__ import annotations

import re

# The functor identifies the operation of an elementwise kernel; the name of the kernel does not.
_FUNCTOR = re.compile(
    r"(\w*Functor\w*|\w+_kernel_cuda|(?!gpu_kernel_impl)\b\w+_kernel_impl\b|\w+KernelImpl|cutlass_\w+)"
)
#: functions whose name is not specific without its namespace
_GENERIC = ("kernel", "Kernel", "Kernel2")
# Nsight's CSV may lack the first bracket.
_NAMELESS = re.compile(r"(\(anonymous namespace\)|<?unnamed>)::")
#: the first bracket of C++ arguments stands right behind a name; in other names it means less
_TEMPLATE = re.compile(r"\w<")
#: parameters right behind a name: a pointer, a reference or a type of C
_PARAMETERS = re.compile(r"\w\([^()]*(\w ?[*&]|\b(const|unsigned|char|short|int|long|float|double|bool)\b)")

#: longer names, as kernels with their template arguments have them, are shortened in tables for people
LONGEST_NAME = 48


def function_of(name: str) -> str:
    """Return the function of a C++ kernel, with its functor; another name as it is.

    >>> function_of("void at::native::vectorized_elementwise_kernel<4, at::native::AddFunctor<float>, x>(int, y)")
    'vectorized_elementwise_kernel<AddFunctor>'
    >>> function_of("unnamed>::transpose_naive_kernel(const float *, float *, int, int)")
    'transpose_naive_kernel'
    >>> function_of("aten::mm(64x64, 64x64) fp16")
    'aten::mm(64x64, 64x64) fp16'
    >>> function_of("products of seq < 512 & more")
    'products of seq < 512 & more'
    """
    bare = _NAMELESS.sub("", name)
    if not (_TEMPLATE.search(bare) or bare.startswith("void ") or _PARAMETERS.search(bare)):
        return bare
    # Without templates and arguments the name is "type function" or "namespace::function".
    words = _outside(bare).partition("(")[0].split()
    *spaces, function = words[-1].split("::") if words else [""]
    functor = _FUNCTOR.search(bare.partition(function)[2].partition("<")[2]) if function else None
    if function in _GENERIC and spaces:
        function = f"{spaces[-1]}::{function}"
    return function + (f"<{functor.group(1)}>" if functor else "") or bare


def short_name(name: str, longest: int = LONGEST_NAME) -> str:
    """Return a name of at most 48 characters: both ends of a longer one, which tell kernels apart.

    >>> short_name("void kernel<" + "int, " * 20 + "float>(Params)")
    'void kernel<int, int, int, int, ...loat>(Params)'
    """
    if len(name) <= longest:
        return name
    front = longest * 2 // 3
    return f"{name[:front]}...{name[front + 3 - longest :]}"


def _outside(text: str) -> str:
    """Return a text without the parts in angle brackets; unmatched closing brackets are removed."""
    depth, kept = 0, []
    for letter in text:
        if letter == "<":
            depth += 1
        elif letter == ">" and depth:
            depth -= 1
        elif not depth:
            kept.append(letter)
    return "".join(kept)
