"""All-reduce: every GPU receives the sum of all messages."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from perfmodel.core.work import Number, minimum, plain
from perfmodel.operators.collective import Collective

#: the dtypes that a switch can add: those of multimem.ld_reduce, floating point and integers of 32 bits and more
#: (NVIDIA, PTX ISA 8.6, section "multimem.ld_reduce"); 8-bit integers are not among them
SWITCH_DTYPES = ("fp64", "fp32", "tf32", "bf16", "fp16", "fp8")


@dataclass(frozen=True, kw_only=True, eq=False)
class AllReduce(Collective):
    """receive[bytes] = sum over the ranks of send[bytes], on each of ``num_gpus`` GPUs.

    Each GPU sends 2 S (n - 1) / n bytes in a ring, or in a reduce-scatter and an all-gather (the "busbw" of
    nccl-tests, https://github.com/NVIDIA/nccl-tests/blob/master/doc/PERFORMANCE.md). An NVSwitch that reduces
    (NVLink SHARP, Hopper and later) needs S (n + 1) / n: a GPU sends its S bytes to the reductions and broadcasts the
    S / n that it reduced. If the machine has such a switch and the switch can add the dtype, the bound takes the
    smaller of the two: the switch's from n = 4 on.

    FLOP = (n - 1) / n additions per element. Memory: S bytes are read and S are written.
    """

    op: ClassVar[str] = "all_reduce"

    def peer_bytes(self, *, in_switch: bool = False) -> Number:
        """Return 2 S (n - 1) / n, or S (n + 1) / n if that is less and the switch may reduce [B]."""
        ring = 2.0 * self.bytes * self.share()
        if not in_switch or self.dtype not in SWITCH_DTYPES:
            return ring
        return plain(minimum(ring, self.bytes * (self.num_gpus + 1.0) / self.num_gpus))

    def grouped_bytes(self, group: Number) -> tuple[Number, Number]:
        """Return 2 S (k - 1) / k within a group of k, before and after the sums of the groups are added up [B]."""
        return 2.0 * self.bytes * (group - 1.0) / group, super().grouped_bytes(group)[1]

    def leaving_bytes(self, gpus: Number) -> Number:
        """Return S / k for a node of k GPUs: the sum of a node leaves it once, where switches of the network add [B].

        Without such switches 2 S (n - k) / (n k) leave, which is as much between two nodes.
        """
        return self.bytes * self._outside(gpus) / gpus

    def steps(self) -> Number:
        """Return 2 (n - 1): a reduce-scatter and an all-gather around the ring."""
        return 2.0 * (self.num_gpus - 1.0)

    def flop(self) -> Number:
        """Return the additions, (n - 1) / n per element [FLOP]."""
        return self.reduced_flop()
