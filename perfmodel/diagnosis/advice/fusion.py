"""Advice on which neighbouring operators to fuse, and which not: memory-bound operators whose intermediate fits."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from perfmodel.core.units import format_si
from perfmodel.core.vocabulary import Dimension
from perfmodel.diagnosis.advice.suggest import LEAST_SAVING, suggest
from perfmodel.diagnosis.execution_order import (
    call_s,
    entries_in_order,
    is_compute_bound,
    is_memory_bound,
    modelled,
)
from perfmodel.diagnosis.fusion import FUSE, Fusion, follows, fuse_operators, reads
from perfmodel.diagnosis.limits import Limit
from perfmodel.diagnosis.measured_run import MeasuredRun
from perfmodel.diagnosis.result import Advice
from perfmodel.operators import Operator
from perfmodel.operators.elementwise import Elementwise
from perfmodel.operators.layer_norm import LayerNorm
from perfmodel.operators.reduction import Reduction
from perfmodel.operators.rms_norm import RmsNorm
from perfmodel.operators.softmax import Softmax
from perfmodel.profile import effort
from perfmodel.profile.profile import REGISTERS
from perfmodel.profile.timeline import Ints

#: most operators in one chain, most chains that become candidates, most neighbours listed as not worth fusing
_LONGEST, _CANDIDATES, _REJECTED = 8, 5, 3
#: number of operators after a chain among which a second reader of its intermediates is searched
_LOOK_AHEAD = 6
_ASSUMPTION = "assuming that only operators with inputs of the same size and dtype read an intermediate again"

#: operators that compilers fuse: elementwise ones, and those that reduce or normalise rows
_FUSIBLE = (Elementwise, LayerNorm, RmsNorm, Softmax, Reduction)

Chain = tuple[int, ...]


class Neighbours:
    """The chains of memory-bound operators in a run, and the pairs of neighbours with a compute-bound operator.

    Attributes
    ----------
    chains : entries of a chain -> number of occurrences.
    mixed : two neighbouring entries, one of them compute-bound -> number of occurrences.
    after : chain -> the entries that ran after its first occurrence.
    """

    def __init__(self, run: MeasuredRun) -> None:
        self.run = run
        self.chains: Counter[Chain] = Counter()
        self.mixed: Counter[Chain] = Counter()
        self.after: dict[Chain, list[int]] = {}
        self._limits: dict[int, Limit | None] = {}
        self._follows: dict[Chain, bool] = {}
        for entries in entries_in_order(run):
            if entries.size > 1:
                self._walk(entries)

    def limit(self, index: int) -> Limit | None:
        """Return `modelled` for an entry; each is computed once."""
        if index not in self._limits:
            self._limits[index] = modelled(self.run, index)
        return self._limits[index]

    def _fits(self, first: int, second: int) -> bool:
        """Whether the output of one modelled entry can be an input of the next."""
        if (first, second) not in self._follows:
            limits = (self.limit(first), self.limit(second))
            # An operator without a prediction stands for others only by its counts (both gradients of a convolution),
            # so its tensors are not those that are passed on.
            ops = [limit.entry.op for limit in limits if limit is not None and limit.predicted_time_s is not None]
            before, after = ops if len(ops) == 2 else (None, None)
            fits = before is not None and after is not None and follows(before, after)
            self._follows[first, second] = fits and not (_is_copy(before) and _is_copy(after))
        return self._follows[first, second]

    def _walk(self, entries: Ints) -> None:
        """Count the chains and the mixed neighbours of one stream."""
        # The many pairs of neighbours in a run are few different ones.
        width = len(self.run.profile.entries) + 1
        code = (entries[:-1] + 1) * width + entries[1:] + 1
        codes, which, counts = np.unique(code, return_inverse=True, return_counts=True)
        pairs = [(int(pair) // width - 1, int(pair) % width - 1) for pair in codes]
        for pair, count in zip(pairs, counts.tolist(), strict=True):
            if self._fits(*pair) and any(is_compute_bound(self.limit(index)) for index in pair):
                self.mixed[pair] += count
        joins = np.array([self._fits(*pair) and all(map(self._is_fusible, pair)) for pair in pairs])[which]
        # A run of joining pairs extends from the entry before the first pair to the entry after the last.
        edges = np.flatnonzero(np.diff(np.concatenate(([False], joins, [False])).astype(np.int8)))
        for begin, last in edges.reshape(-1, 2).tolist():
            self._split(entries[begin : last + 1].tolist(), entries[last + 1 : last + 1 + _LOOK_AHEAD].tolist())

    def _split(self, joined: list[int], after: list[int]) -> None:
        """Count the chains of joined entries: a chain ends where its first entry comes again, or at `_LONGEST`."""
        begin = 0
        for end in range(1, len(joined) + 1):
            if end < len(joined) and joined[end] != joined[begin] and end - begin < _LONGEST:
                continue
            if end - begin > 1:
                chain = tuple(joined[begin:end])
                self.chains[chain] += 1
                self.after.setdefault(chain, (joined[end:] + after)[:_LOOK_AHEAD])
            begin = end

    def _is_fusible(self, index: int) -> bool:
        """Whether a generated kernel can include an entry: it is memory-bound, and no algorithm of a library."""
        limit = self.limit(index)
        return limit is not None and is_memory_bound(limit) and isinstance(limit.entry.op, _FUSIBLE)

    def fused(self, chain: Sequence[int], uses: int = 1) -> Fusion:
        """Return what fusing a chain saves in one occurrence."""
        limits = [limit for limit in map(self.limit, chain) if limit is not None]
        readings = [limit.entry.metrics.get(REGISTERS) for limit in limits]
        registers = [reading for reading in readings if reading is not None]
        assert self.run.hardware is not None
        return fuse_operators(
            self.ops(chain),
            self.run.hardware,
            times_s=[call_s(limit) for limit in limits],
            uses=uses,
            registers_per_thread=registers if len(registers) == len(limits) else (),
        )

    def ops(self, indices: Sequence[int]) -> list[Operator]:
        """Return the operators of some entries, of those that are modelled."""
        limits = [limit for limit in map(self.limit, indices) if limit is not None]
        return [limit.entry.op for limit in limits if limit.entry.op is not None]

    def names(self, indices: Sequence[int]) -> str:
        """Return the name of a chain: "mul + add"."""
        entries = [self.run.profile.entries[index] for index in indices]
        return " + ".join((entry.launched_by or entry.name).removeprefix("aten::") for entry in entries)


def _is_copy(op: Operator | None) -> bool:
    """Whether an operator copies; consecutive copies (of queries, keys, values) do not read each other's output."""
    return isinstance(op, Elementwise) and op.kind == "copy"


class _Judged(NamedTuple):
    """A chain that is worth fusing, with the saving over the run [s]."""

    saved_s: float
    chain: Chain
    occurrences: int
    fusion: Fusion


def fusion_advice(run: MeasuredRun, neighbours: Neighbours) -> Iterator[Advice | None]:
    """Yield the chains whose fusion saves most, all occurrences together."""
    judged = []
    for chain, count in neighbours.chains.items():
        uses = 2 if _read_again(neighbours.ops(chain), neighbours.ops(neighbours.after[chain])) else 1
        fusion = neighbours.fused(chain, uses)
        if fusion.verdict == FUSE:
            judged.append(_Judged((fusion.time_s - fusion.fused_time_s) * count / run.num_gpus, chain, count, fusion))
    judged.sort(key=lambda item: -item.saved_s)
    for saved_s, chain, count, fusion in judged[:_CANDIDATES]:
        name = neighbours.names(chain)
        yield suggest(
            run,
            effort.FUSE,
            Dimension.MEMORY,
            name=f"fuse {name}",
            text=f"compute {name} in one kernel (torch.compile, Triton): {format_si(fusion.bytes_saved, 'B')} less "
            f"traffic, {times(count)}",
            targets=tuple(dict.fromkeys(run.profile.entries[index].name for index in chain)),
            saved_s=saved_s,
            basis=f"{times(count)} {format_si(fusion.time_s, 's')} become {format_si(fusion.fused_time_s, 's')}: "
            f"{fusion.reason}; {_ASSUMPTION}",
        )


def _read_again(chain: Sequence[Operator], after: Sequence[Operator]) -> bool:
    """Whether a later operator reads a tensor of an intermediate's size that nothing else has written since."""
    for place, op in enumerate(chain[:-1]):
        written = [(float(tensor.size_bytes), tensor.dtype) for tensor in op.tensors() if tensor.writes]
        for intermediate in written:
            # The next operator reads the intermediate; that is the chain itself.
            for index, reader in enumerate([*chain[place + 1 :], *after]):
                if index and intermediate in reads(reader):
                    return True
                if any((float(t.size_bytes), t.dtype) == intermediate for t in reader.tensors() if t.writes):
                    break
    return False


def fusion_not_advised(run: MeasuredRun, neighbours: Neighbours) -> list[str]:
    """Return neighbours that are not worth fusing although one can feed the next, the longest-running first."""
    listed: dict[str, tuple[float, str]] = {}
    # The registers of a chain may not fit, so chains are checked, too.
    for chain, count in (*neighbours.mixed.items(), *neighbours.chains.items()):
        fusion, name = neighbours.fused(chain), neighbours.names(chain)
        time_s = fusion.time_s * count / run.num_gpus
        if fusion.verdict != FUSE and time_s >= max(LEAST_SAVING * run.total_s, listed.get(name, (0.0, ""))[0]):
            listed[name] = (time_s, f"{name} ({times(count)}): {fusion.verdict}; {fusion.reason}.")
    return [text for _, text in sorted(listed.values(), key=lambda item: -item[0])[:_REJECTED]]


def times(count: int) -> str:
    """Return a count as text.

    >>> times(1), times(3)
    ('once', '3 times')
    """
    return "once" if count == 1 else f"{count} times"
