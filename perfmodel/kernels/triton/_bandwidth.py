"""Kernels that only read, write, multiply-add or do nothing: the ceilings of caches and of the vector engine.

Their loops advance by an argument that the compiler does not know, so that it cannot hoist a load. Tests check the
machine code for compute capability 8.0, 9.0 and 10.0: it contains every load of a loop, 16 bytes per thread.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import torch
import triton
import triton.language as tl

from perfmodel.kernels.precision import TORCH_DTYPES
from perfmodel.kernels.torch._bandwidth import Probe

#: elements of a block (4 KiB of float32), and blocks per turn of a loop (64 KiB per program)
_BLOCK, _UNROLL = 1024, 16
#: multiply-adds of a chain per turn of its loop: its counter and branch are below 2 % of the instructions
_CHAIN_UNROLL = 32
#: programs per SM of a streaming kernel; eight of four warps fill half the warps of an SM
_PROGRAMS_PER_SM = 8
#: bytes of the ring that all programs of an SM read from L1; smaller than the L1 of any GPU since Volta
_RING_BYTES = 2**14
#: bytes that a kernel reads from or writes to a cache, and FLOP of a chain: about a millisecond each
_CACHED_BYTES, _CHAIN_FLOP = 2.0**33, 2.0**35
#: instructions with two multiply-adds of 16-bit numbers, and the bits of their fractions
_PAIRED: Mapping[str, tuple[str, int]] = MappingProxyType(
    {"fp16": ("fma.rn.f16x2 $0, $1, $2, $3;", 0x03FF), "bf16": ("fma.rn.bf16x2 $0, $1, $2, $3;", 0x007F)}
)
#: factor and shift of a chain
_FACTOR, _SHIFT = -1.0, 0.75
#: dtypes of a chain of multiply-adds
CHAINS = ("fp32", "fp64", "fp16", "bf16")


@triton.jit
def _read(x, out, turns, start, step, mask, BLOCK: tl.constexpr, UNROLL: tl.constexpr, CACHE: tl.constexpr):
    """Sum blocks of x: program p starts at block p * start and advances by ``step`` blocks in a ring of mask + 1."""
    program = tl.program_id(0)
    offsets = tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK,), tl.float32)
    block = program * start
    for _ in range(turns):
        for _ in tl.static_range(UNROLL):
            total += tl.load(x + (block & mask) * BLOCK + offsets, cache_modifier=CACHE)
            block += step
    tl.store(out + program, tl.sum(total))


@triton.jit
def _write(x, turns, step, mask, BLOCK: tl.constexpr, UNROLL: tl.constexpr):
    """Fill blocks of x: program p starts at block p and advances by ``step`` blocks in a ring of mask + 1."""
    program = tl.program_id(0)
    offsets = tl.arange(0, BLOCK)
    values = (offsets + program).to(tl.float32)
    block = program
    for _ in range(turns):
        for _ in tl.static_range(UNROLL):
            tl.store(x + (block & mask) * BLOCK + offsets, values)
            block += step


@triton.jit
def _chain(out, factor, shift, turns, BLOCK: tl.constexpr, UNROLL: tl.constexpr):
    """Compute x = factor x + shift repeatedly; with factor -1, x alternates and does not converge.

    Factor and shift are scalars that all chains share, so that they come from the operand cache. An instruction that
    reads three vector registers of its own issues in 2 of 3 cycles, since the registers have two banks, with one read
    of each a cycle: an H100 reached 61 % of its peak so, and 98 % with shared operands; an RTX A4000 55 and 95 %
    (forums.developer.nvidia.com/t/how-to-understand-register-bank-on-rtx-a4000/266769).
    """
    program = tl.program_id(0)
    offsets = program * BLOCK + tl.arange(0, BLOCK)
    # the upper bits of a linear congruential generator: values from 0 to 1
    x = (((offsets * 1103515245 + 12345) & 0x7FFFFFFF) * (1.0 / 2147483648.0)).to(out.dtype.element_ty)
    factors = tl.full((BLOCK,), factor, x.dtype)
    shifts = tl.full((BLOCK,), shift, x.dtype)
    for _ in range(turns):
        for _ in tl.static_range(UNROLL):
            x = tl.fma(x, factors, shifts)
    tl.store(out + offsets, x)


@triton.jit
def _paired_chain(
    out, factor, shift, fraction, half, turns, BLOCK: tl.constexpr, UNROLL: tl.constexpr, CODE: tl.constexpr
):
    """Do the same with two 16-bit numbers in each 32 bits.

    Bits of factor and shift are arguments: of two numbers that it knows to be equal the compiler makes an instruction
    that only one of two pipes takes. ``fraction`` and ``half`` make pairs from 0.5 to 1 of random bits.
    """
    program = tl.program_id(0)
    offsets = program * BLOCK + tl.arange(0, BLOCK)
    x = ((offsets * 1103515245 + 12345) & fraction) | half
    factors = tl.full((BLOCK,), factor, tl.int32)
    shifts = tl.full((BLOCK,), shift, tl.int32)
    for _ in range(turns):
        for _ in tl.static_range(UNROLL):
            x = tl.inline_asm_elementwise(CODE, "=r,r,r,r", [x, factors, shifts], dtype=tl.int32, is_pure=True, pack=1)
    tl.store(out + offsets, x)


@triton.jit
def _empty(x):
    """Do nothing."""


def empty_launch() -> Any:
    """Return the launch of an empty kernel."""
    x = torch.empty(1, device="cuda")
    return functools.partial(_empty[(1,)], x, num_warps=1)


def memory_probes(numel: int, programs: int, device: str = "cuda") -> dict[str, Probe]:
    """Return a read and a write of most of a float32 buffer of ``numel`` elements, each element at most once."""
    turns = numel // (_BLOCK * programs * _UNROLL)
    x = torch.randn(numel, device=device)
    no_ring = 2**31 - 1  # larger than the number of blocks
    return {"read": _reading(x, programs, turns, no_ring, ".cg"), "write": _writing(x, programs, turns, no_ring)}


def l2_probes(ring_bytes: float, programs: int, device: str = "cuda", moved: float = _CACHED_BYTES) -> dict[str, Probe]:
    """Return a read and a write of a ring in the L2, whose size is the largest power of two within ``ring_bytes``.

    ``.cg`` bypasses L1 for the loads; every program reaches every part of the ring.
    """
    blocks = _blocks_within(ring_bytes)
    turns = max(1, int(moved / (4.0 * _BLOCK * programs * _UNROLL)))
    x = torch.randn(blocks * _BLOCK, device=device)
    return {"read": _reading(x, programs, turns, blocks - 1, ".cg"), "write": _writing(x, programs, turns, blocks - 1)}


def l1_probes(programs: int, device: str = "cuda", moved: float = _CACHED_BYTES) -> dict[str, Probe]:
    """Return a read of a ring of 16 KiB, which is the same for all programs and remains in each L1."""
    blocks = _blocks_within(_RING_BYTES)
    turns = max(1, int(moved / (4.0 * _BLOCK * programs * _UNROLL)))
    x = torch.randn(blocks * _BLOCK, device=device)
    return {"read": _reading(x, programs, turns, blocks - 1, "", start=0, step=1)}


def chain_probe(dtype: str, programs: int, device: str = "cuda", flop: float = _CHAIN_FLOP) -> Probe:
    """Return a chain of multiply-adds in registers, 8 independent ones per thread: the rate of the vector engine.

    One multiply-add is 2 FLOP. An instruction has two 16-bit numbers, as datasheets count them.
    """
    lanes = 2 if dtype in _PAIRED else 1
    flop_of_a_turn = 2.0 * lanes * _BLOCK * programs * _CHAIN_UNROLL
    turns = max(1, int(flop / flop_of_a_turn))
    sizes = {"BLOCK": _BLOCK, "UNROLL": _CHAIN_UNROLL}
    if dtype in _PAIRED:
        code, fraction = _PAIRED[dtype]
        constants = (_pair(_FACTOR, dtype), _pair(_SHIFT, dtype), fraction * 0x10001, _pair(0.5, dtype))
        out = torch.empty(programs * _BLOCK, dtype=torch.int32, device=device)
        call = functools.partial(_paired_chain[(programs,)], out, *constants, turns, **sizes, CODE=code)
    else:
        out = torch.empty(programs * _BLOCK, dtype=TORCH_DTYPES[dtype], device=device)
        call = functools.partial(_chain[(programs,)], out, _FACTOR, _SHIFT, turns, **sizes)
    return Probe(call, flop_of_a_turn * turns)


def _pair(value: float, dtype: str) -> int:
    """Return the bits of two equal 16-bit numbers, as a signed 32-bit integer.

    >>> hex(_pair(0.5, "bf16")), hex(_pair(-1.0, "fp16") & 0xFFFFFFFF)
    ('0x3f003f00', '0xbc00bc00')
    """
    return int(torch.tensor([value, value], dtype=TORCH_DTYPES[dtype]).view(torch.int32).item())


def programs_that_fill(sms: int) -> int:
    """Return the number of programs of these kernels that fill a GPU with ``sms`` SMs."""
    return sms * _PROGRAMS_PER_SM


def _blocks_within(size_bytes: float) -> int:
    """Return the largest power of two of blocks within a size."""
    return 1 << max(0, int(size_bytes / (4 * _BLOCK)).bit_length() - 1)


def _reading(
    x: torch.Tensor, programs: int, turns: int, mask: int, cache: str, start: int = 1, step: int | None = None
) -> Probe:
    out = torch.empty(programs, device=x.device)
    stride = programs if step is None else step
    call = functools.partial(
        _read[(programs,)], x, out, turns, start, stride, mask, BLOCK=_BLOCK, UNROLL=_UNROLL, CACHE=cache
    )
    return Probe(call, 4.0 * _BLOCK * _UNROLL * programs * turns)


def _writing(x: torch.Tensor, programs: int, turns: int, mask: int) -> Probe:
    call = functools.partial(_write[(programs,)], x, turns, programs, mask, BLOCK=_BLOCK, UNROLL=_UNROLL)
    return Probe(call, 4.0 * _BLOCK * _UNROLL * programs * turns)
