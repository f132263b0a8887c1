"""What fusing neighbouring operators saves, and when not to: the intermediate that no longer crosses memory."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

from perfmodel.core.hardware import Hardware
from perfmodel.core.units import format_si
from perfmodel.errors import UsageError
from perfmodel.operators import Operator
from perfmodel.prediction.predict import predict

FUSE, EPILOGUE, KEEP = "fuse", "only as an epilogue", "do not fuse"
#: registers of a thread above which an SM of 65,536 registers runs 16 warps or fewer, a quarter of its 64
#: (65,536 / (32 x 128) = 16): too few to keep the memory busy
MANY_REGISTERS = 128
#: registers that every kernel needs for its addresses and indices, and a fused one once: the fewest of any of
#: PyTorch's elementwise kernels (16, in traces of PyTorch 2 on an H100)
_COMMON_REGISTERS = 16


@dataclass(frozen=True)
class Fusion:
    """Two or more operators in a row as one kernel.

    Attributes
    ----------
    verdict : "fuse", "only as an epilogue" or "do not fuse"; ``reason`` says why.
    bytes_saved : traffic of the intermediates that the fused kernel leaves out [B].
    time_s, fused_time_s : of one call each after the other, and of the fused kernel [s].
    """

    verdict: str
    reason: str
    bytes_saved: float
    time_s: float
    fused_time_s: float

    @property
    def speedup(self) -> float:
        """Time apart over time fused."""
        return self.time_s / self.fused_time_s


def fuse(
    operators: Sequence[Operator],
    hardware: Hardware,
    *,
    times_s: Sequence[float] = (),
    uses: int = 1,
    registers_per_thread: Sequence[float] = (),
) -> Fusion:
    """Return what fusing operators that follow each other saves.

    The output of each is an input of the next. Apart, it is written once and read once; fused it is not read again,
    and not written either where nothing else uses it: bytes saved = (2 or 1) x its size. Memory-bound kernels keep the
    bandwidth that they reach, so the fused time is their time x (bytes left / bytes apart), but no less than that of
    the longest computation among them. (The accounting is reference practice, e.g. "6 accesses become 2" for
    three operators on tensors of one size; here with every tensor's own size.)

    Parameters
    ----------
    operators : two or more, scalar, in the order in which they run.
    hardware : the machine.
    times_s : measured time of one call of each [s]; without it, predicted.
    uses : how many operators read each intermediate; 2 where a residual connection reads it again.
    registers_per_thread : of each kernel, where a profile says it. The fused one is taken to need those of the largest,
        and of each other those above the 16 that any kernel has: an estimate from above, since not all live at once.

    Raises
    ------
    UsageError
        When fewer than two operators are given, or the output of one is no input of the next.
    """
    if len(operators) < 2:
        raise UsageError("fusion needs two operators or more.", remedy="Give those that follow each other.")
    made = [predict(op, hardware) for op in operators]
    times = [float(time) for time in times_s] or [float(one.predicted_time_s) for one in made]
    apart = [float(op.work().bytes) for op in operators]
    saved = (2.0 if uses <= 1 else 1.0) * sum(_intermediate_bytes(a, b) for a, b in itertools.pairwise(operators))
    computing = [
        op
        for op, one in zip(operators, made, strict=True)
        if one.arithmetic_intensity_flop_per_byte >= one.ridge_point_flop_per_byte
    ]
    left = 1.0 - saved / sum(apart)
    longest_computation = max((float(one.alone_s.get("math", 0.0)) for one in made), default=0.0)
    fused = max(sum(times) * left, longest_computation)
    verdict, reason = _verdict(operators, computing, uses, saved, _together(registers_per_thread))
    return Fusion(verdict, reason, saved, sum(times), fused)


def follows(first: Operator, second: Operator) -> bool:
    """Whether the output of one operator can be an input of another: of the same size and dtype."""
    return any(
        float(made.size_bytes) == size and made.dtype == dtype
        for made in first.tensors()
        if made.writes and not made.reads
        for size, dtype in reads(second)
    )


def reads(op: Operator) -> list[tuple[float, str]]:
    """Return size [B] and dtype of each input of an operator; an elementwise one stacks its inputs in one tensor."""
    sizes = []
    for tensor in op.tensors():
        if tensor.reads and not tensor.writes:
            stacked = float(getattr(op, "num_inputs", 1))
            sizes.append((float(tensor.size_bytes) / stacked, tensor.dtype))
    return sizes


def _intermediate_bytes(first: Operator, second: Operator) -> float:
    if not follows(first, second):
        raise UsageError(f"no output of {first.op} has the size and dtype of an input of {second.op}.")
    sizes = [size for size, _ in reads(second)]
    return next(
        float(t.size_bytes) for t in first.tensors() if t.writes and not t.reads and float(t.size_bytes) in sizes
    )


def _together(registers: Sequence[float]) -> float:
    """Return the registers of a thread of kernels in one; 0 where they are not known."""
    ordered = sorted(registers)
    return sum(max(one - _COMMON_REGISTERS, 0.0) for one in ordered[:-1]) + ordered[-1] if ordered else 0.0


def _verdict(
    operators: Sequence[Operator], computing: Sequence[Operator], uses: int, saved: float, registers: float
) -> tuple[str, str]:
    """Return whether to fuse, and why."""
    gain = f"{format_si(saved, 'B')} less to move in each call"
    if len(computing) == len(operators):
        return KEEP, "all of them are compute-bound: the traffic that fusion saves hides behind their arithmetic"
    if computing and operators[0] not in computing:
        return KEEP, (
            f"{computing[0].op} is compute-bound and reads the whole result several times: computed inside it, "
            "the operators before it would run once for each tile"
        )
    if computing:
        return EPILOGUE, (
            f"{computing[0].op} is compute-bound: a kernel of your own would have to match the library's; use its "
            f"epilogue (bias, activation) instead, {gain}"
        )
    if registers > MANY_REGISTERS:
        return KEEP, (
            f"in one kernel they need about {registers:.0f} registers a thread: above {MANY_REGISTERS} an SM "
            "holds a quarter of its warps or fewer, too few to hide memory latency"
        )
    if uses > 1:
        return FUSE, f"memory-bound; the intermediate is used again, so it is still written: {gain}"
    return FUSE, f"memory-bound, one after the other: {gain}, if nothing else reads the intermediate"
