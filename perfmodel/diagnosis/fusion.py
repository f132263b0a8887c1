"""The saving of fusing consecutive operators, whose intermediates then stay out of memory, and when not to fuse."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

from perfmodel.core.hardware import Hardware
from perfmodel.core.report import Reportable
from perfmodel.core.units import format_si
from perfmodel.errors import UsageError
from perfmodel.operators import Operator
from perfmodel.prediction.predict import predict

FUSE, EPILOGUE, KEEP = "fuse", "only as an epilogue", "do not fuse"
#: share of the threads of an SM that keep the memory busy: a kernel whose registers leave fewer is not worth fusing
LEAST_OCCUPANCY = 0.25
#: registers for addresses and indices, which every kernel needs, and a fused kernel only once: the smallest number of
#: any of PyTorch's elementwise kernels (16, in traces of PyTorch 2 on an H100)
_COMMON_REGISTERS = 16


@dataclass(frozen=True)
class Fusion(Reportable):
    """Two or more consecutive operators as one kernel.

    Attributes
    ----------
    verdict, reason : "fuse", "only as an epilogue" or "do not fuse", and the reason.
    bytes_saved : traffic of the intermediates that the fused kernel avoids [B].
    time_s, fused_time_s : time of one call of each operator, one after another, and of the fused kernel [s].
    """

    verdict: str
    reason: str
    bytes_saved: float
    time_s: float
    fused_time_s: float

    @property
    def speedup(self) -> float:
        """Time of the separate operators over time of the fused kernel."""
        return self.time_s / self.fused_time_s


def fuse_operators(
    operators: Sequence[Operator],
    hardware: Hardware,
    *,
    times_s: Sequence[float] = (),
    uses: int = 1,
    registers_per_thread: Sequence[float] = (),
) -> Fusion:
    """Return the saving of fusing consecutive operators.

    The output of each operator is an input of the next. Separate operators write and read it once each; a fused kernel
    does not read it, and writes it only if another operator needs it: bytes saved = (2 or 1) x its size. Memory-bound
    kernels keep the bandwidth that they reach, so the fused time is their time x (remaining bytes / all bytes), but at
    least the time of the longest computation among them. (This accounting is reference practice, e.g. "6 accesses
    become 2" for three operators on tensors of one size; here each tensor has its own size.)

    Parameters
    ----------
    operators : two or more, scalar, in the order in which they run.
    hardware : the machine.
    times_s : measured time of one call of each operator [s]; empty for predicted times.
    uses : number of operators that read each intermediate; 2 where a residual connection reads it again.
    registers_per_thread : of each kernel, where a profile records it. The fused kernel is assumed to need the registers
        of the largest kernel, plus those above 16 of each other kernel: an upper estimate, since not all live at once.

    Raises
    ------
    UsageError
        When fewer than two operators are given, or an operator does not produce an input of the next.
    """
    if len(operators) < 2:
        raise UsageError("fusion needs two or more operators.", remedy="Give consecutive operators.")
    predictions = [predict(op, hardware) for op in operators]
    time_s = sum([float(time) for time in times_s] or [float(each.predicted_time_s) for each in predictions])
    all_bytes = sum(float(op.work().bytes) for op in operators)
    saved = (2.0 if uses <= 1 else 1.0) * sum(_intermediate_bytes(a, b) for a, b in itertools.pairwise(operators))
    computing = [
        op
        for op, each in zip(operators, predictions, strict=True)
        if each.arithmetic_intensity_flop_per_byte >= each.ridge_point_flop_per_byte
    ]
    longest_computation_s = max((float(each.alone_s.get("math", 0.0)) for each in predictions), default=0.0)
    fused_s = max(time_s * (1.0 - saved / all_bytes), longest_computation_s)
    verdict, reason = _verdict(
        operators,
        computing,
        uses,
        saved,
        _fused_registers(registers_per_thread),
        hardware.registers_per_thread(LEAST_OCCUPANCY),
    )
    return Fusion(verdict, reason, saved, time_s, fused_s)


def follows(first: Operator, second: Operator) -> bool:
    """Whether the output of one operator can be an input of another: same size and dtype."""
    return any(
        float(output.size_bytes) == size and output.dtype == dtype
        for output in first.tensors()
        if output.writes and not output.reads
        for size, dtype in reads(second)
    )


def reads(op: Operator) -> list[tuple[float, str]]:
    """Return size [B] and dtype of each input; an elementwise operator has all its inputs stacked in one tensor."""
    sizes = []
    for tensor in op.tensors():
        if tensor.reads and not tensor.writes and tensor.size_bytes > 0:  # one that is broadcast counts as none
            stacked = float(getattr(op, "num_inputs", 1))
            sizes.append((float(tensor.size_bytes) / stacked, tensor.dtype))
    return sizes


def _intermediate_bytes(first: Operator, second: Operator) -> float:
    if not follows(first, second):
        raise UsageError(f"{first.op} has no output with the size and dtype of an input of {second.op}.")
    sizes = [size for size, _ in reads(second)]
    return next(
        float(t.size_bytes) for t in first.tensors() if t.writes and not t.reads and float(t.size_bytes) in sizes
    )


def _fused_registers(registers: Sequence[float]) -> float:
    """Return the registers per thread of several kernels fused into one; 0 where they are unknown."""
    if not registers:
        return 0.0
    *others, largest = sorted(registers)
    return largest + sum(max(each - _COMMON_REGISTERS, 0.0) for each in others)


def _verdict(
    operators: Sequence[Operator],
    computing: Sequence[Operator],
    uses: int,
    saved: float,
    registers: float,
    most_registers: float,
) -> tuple[str, str]:
    """Return the verdict and its reason; the kernel may have ``most_registers`` a thread."""
    gain = f"{format_si(saved, 'B')} less traffic per call"
    if len(computing) == len(operators):
        return KEEP, "all operators are compute-bound: arithmetic hides the traffic that fusion would save"
    if computing and operators[0] not in computing:
        return KEEP, (
            f"{computing[0].op} is compute-bound and reads its whole input several times: fused into it, the operators "
            "before it would run once for each tile"
        )
    if computing:
        return EPILOGUE, (
            f"{computing[0].op} is compute-bound, and a hand-written kernel would have to match the library's: use the "
            f"library's epilogue (bias, activation) instead, {gain}"
        )
    if registers > most_registers:
        return KEEP, (
            f"the fused kernel needs about {registers:.0f} registers per thread: above {most_registers:.0f}, an SM "
            "holds less than a quarter of its warps, too few to hide memory latency"
        )
    if uses > 1:
        return FUSE, f"memory-bound; another operator reads the intermediate, so it is still written: {gain}"
    return FUSE, f"memory-bound and consecutive: {gain} if no other operator reads the intermediate"
