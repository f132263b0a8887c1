"""A kernel that only reads shared memory, in Gluon, Triton's language with explicit layouts (Triton 3.4 and later)."""

from __future__ import annotations

import functools

import torch
from triton.experimental import gluon
from triton.experimental.gluon import language as gl

from perfmodel.kernels.torch._bandwidth import Probe

#: elements of a slot (4 KiB of float32), slots (16 KiB per program), and reads in one turn of the loop
_SLOT, _SLOTS, _UNROLL = 1024, 4, 16
_WARPS = 4
#: bytes that one call reads: about a millisecond
_MOVED_BYTES = 2.0**33


@gluon.jit
def _read_shared(out, turns, mask, SLOT: gl.constexpr, SLOTS: gl.constexpr, UNROLL: gl.constexpr, WARPS: gl.constexpr):
    """Sum slots of shared memory in turn; ``mask`` is an argument, so that the compiler cannot hoist a read."""
    layout: gl.constexpr = gl.BlockedLayout([4], [32], [WARPS], [0])
    plain: gl.constexpr = gl.SwizzledSharedLayout(1, 1, 1, order=[0])
    program = gl.program_id(0)
    offsets = gl.arange(0, SLOT, layout=layout)
    buffer = gl.allocate_shared_memory(gl.float32, [SLOTS, SLOT], plain)
    for slot in gl.static_range(SLOTS):
        buffer.index(slot).store((offsets + slot).to(gl.float32))
    total = gl.zeros([SLOT], gl.float32, layout=layout)
    turn = program
    for _ in range(turns):
        for _ in gl.static_range(UNROLL):
            total += buffer.index(turn & mask).load(layout)
            turn += 1
    gl.store(out + program * SLOT + offsets, total)


def shared_probe(programs: int) -> Probe:
    """Return a read of shared memory by ``programs`` programs of four warps, 16 bytes per thread, no bank conflicts."""
    turns = max(1, int(_MOVED_BYTES / (4.0 * _SLOT * _UNROLL * programs)))
    out = torch.empty(programs * _SLOT, device="cuda")
    call = functools.partial(
        _read_shared[(programs,)],
        out,
        turns,
        _SLOTS - 1,
        SLOT=_SLOT,
        SLOTS=_SLOTS,
        UNROLL=_UNROLL,
        WARPS=_WARPS,
        num_warps=_WARPS,
    )
    return Probe(call, 4.0 * _SLOT * _UNROLL * programs * turns)
