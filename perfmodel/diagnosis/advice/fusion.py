"""Which neighbours to fuse, and which to leave: memory-bound operators in a row whose intermediate fits."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

import numpy as np

from perfmodel.core.units import format_si
from perfmodel.diagnosis.case import LEAST_GAIN, Case
from perfmodel.diagnosis.decompose import MEMORY
from perfmodel.diagnosis.fusion import FUSE, Fusion, follows, fuse, reads
from perfmodel.diagnosis.limits import Limit
from perfmodel.diagnosis.result import Advice
from perfmodel.diagnosis.sequence import call_s, compute_bound, memory_bound, modelled, sequences
from perfmodel.operators import Operator
from perfmodel.operators.elementwise import Elementwise
from perfmodel.operators.layer_norm import LayerNorm
from perfmodel.operators.reduction import Reduction
from perfmodel.operators.rms_norm import RmsNorm
from perfmodel.operators.softmax import Softmax
from perfmodel.profile import effort
from perfmodel.profile.profile import REGISTERS
from perfmodel.profile.timeline import Ints

#: operators in one chain, chains that become candidates, and neighbours that are listed as better left
_LONGEST, _CANDIDATES, _LEFT = 8, 5, 3
#: operators behind a chain in which a second reader of its intermediates is looked for
_LOOK_AHEAD = 6
_ASSUMED = "assuming that an intermediate is read again only where its size and dtype say so"

#: what compilers fuse: elementwise operators, and what reduces or normalises rows
_FUSIBLE = (Elementwise, LayerNorm, RmsNorm, Softmax, Reduction)

Chain = tuple[int, ...]


def _siblings(first: Operator | None, second: Operator | None) -> bool:
    """Whether two operators copy: no copy is made of a copy, so they work side by side (of queries, keys, values)."""
    return all(isinstance(op, Elementwise) and op.kind == "copy" for op in (first, second))


class Neighbours:
    """Chains of memory-bound operators of a run, and neighbours of which one computes; with their counts."""

    def __init__(self, case: Case) -> None:
        self.case = case
        self.chains: Counter[Chain] = Counter()
        self.mixed: Counter[tuple[int, int]] = Counter()
        self.after: dict[Chain, list[int]] = {}
        self._limits: dict[int, Limit | None] = {}
        self._follows: dict[tuple[int, int], bool] = {}
        for items in sequences(case):
            if items.size > 1:
                self._walk(items)

    def limit(self, index: int) -> Limit | None:
        """Return `modelled`, looked up once."""
        if index not in self._limits:
            self._limits[index] = modelled(self.case, index)
        return self._limits[index]

    def _fits(self, first: int, second: int) -> bool:
        """Whether two modelled neighbours could hand over their intermediate."""
        if (first, second) not in self._follows:
            a, b = self.limit(first), self.limit(second)
            # an operator that stands for others only by its counts (both gradients of a convolution) hands nothing over
            known = a and b and a.predicted_time_s is not None and b.predicted_time_s is not None
            ops = (a.entry.op, b.entry.op) if a and b and known else (None, None)
            self._follows[first, second] = bool(ops[0] and ops[1] and follows(ops[0], ops[1]) and not _siblings(*ops))
        return self._follows[first, second]

    def _walk(self, items: Ints) -> None:
        """Count the chains and the mixed neighbours of one stream."""
        # few different pairs of neighbours stand for the many of a run
        width = len(self.case.profile.entries) + 1
        code = (items[:-1] + 1) * width + items[1:] + 1
        pairs, which, counts = np.unique(code, return_inverse=True, return_counts=True)
        neighbours = [(int(pair) // width - 1, int(pair) % width - 1) for pair in pairs]
        for pair, count in zip(neighbours, counts.tolist(), strict=True):
            if self._fits(*pair) and any(compute_bound(self.limit(index)) for index in pair):
                self.mixed[pair] += count
        joins = np.array([self._fits(*pair) and all(map(self._pointwise, pair)) for pair in neighbours])[which]
        # runs of pairs that join: from the item before the first to that behind the last
        edges = np.flatnonzero(np.diff(np.concatenate(([False], joins, [False])).astype(np.int8)))
        for begin, last in edges.reshape(-1, 2).tolist():
            self._split(items[begin : last + 1].tolist(), items[last + 1 : last + 1 + _LOOK_AHEAD].tolist())

    def _split(self, run: list[int], behind: list[int]) -> None:
        """Count the chains of one run: a chain ends where its first operator comes again, or at `_LONGEST`."""
        begin = 0
        for end in range(1, len(run) + 1):
            if end < len(run) and run[end] != run[begin] and end - begin < _LONGEST:
                continue
            if end - begin > 1:
                chain = tuple(run[begin:end])
                self.chains[chain] += 1
                self.after.setdefault(chain, (run[end:] + behind)[:_LOOK_AHEAD])
            begin = end

    def _pointwise(self, index: int) -> bool:
        """Whether an entry is one that a generated kernel can take in: memory-bound, and no library's algorithm."""
        limit = self.limit(index)
        return memory_bound(limit) and limit is not None and isinstance(limit.entry.op, _FUSIBLE)

    def fused(self, chain: Sequence[int], uses: int = 1) -> Fusion:
        """Return what fusing a chain brings to one pass of it."""
        parts = [one for one in map(self.limit, chain) if one is not None]
        ops = [one.entry.op for one in parts if one.entry.op is not None]
        said = [one.entry.metrics.get(REGISTERS) for one in parts]
        registers = [one for one in said if one is not None]
        assert self.case.hardware is not None
        return fuse(
            ops,
            self.case.hardware,
            times_s=[call_s(one) for one in parts],
            uses=uses,
            registers_per_thread=registers if len(registers) == len(parts) else (),
        )

    def ops(self, indices: Sequence[int]) -> list[Operator]:
        """Return the operators of some entries, of those that are modelled."""
        parts = [self.limit(index) for index in indices]
        return [one.entry.op for one in parts if one is not None and one.entry.op is not None]

    def names(self, indices: Sequence[int]) -> str:
        """Return what a chain is called: "mul + add"."""
        entries = [self.case.profile.entries[index] for index in indices]
        return " + ".join((entry.launched_by or entry.name).removeprefix("aten::") for entry in entries)


def fusion_advice(case: Case, neighbours: Neighbours) -> Iterator[Advice | None]:
    """Yield the chains whose fusion saves most, all their occurrences together."""
    judged = []
    for chain, count in neighbours.chains.items():
        uses = 2 if _read_again(neighbours.ops(chain), neighbours.ops(neighbours.after[chain])) else 1
        made = neighbours.fused(chain, uses)
        if made.verdict == FUSE:
            judged.append(((made.time_s - made.fused_time_s) * count / case.gpus, chain, count, made))
    judged.sort(key=lambda one: -one[0])
    for saved_s, chain, count, made in judged[:_CANDIDATES]:
        basis = (
            f"{times(count)} {format_si(made.time_s, 's')} become {format_si(made.fused_time_s, 's')}: "
            f"{made.reason}; {_ASSUMED}"
        )
        entries = dict.fromkeys(case.profile.entries[index].name for index in chain)
        yield case.advise(
            effort.FUSE,
            MEMORY,
            f"fuse {neighbours.names(chain)}",
            f"one kernel for {neighbours.names(chain)} (torch.compile, Triton): {format_si(made.bytes_saved, 'B')} "
            f"less traffic, {times(count)}",
            tuple(entries),
            saved_s,
            basis,
        )


def _read_again(chain: Sequence[Operator], behind: Sequence[Operator]) -> bool:
    """Whether something behind a chain reads a tensor of an intermediate's size that nothing else has made since."""
    for place, op in enumerate(chain[:-1]):
        made = [(float(tensor.size_bytes), tensor.dtype) for tensor in op.tensors() if tensor.writes]
        for tensor in made:
            later = [*chain[place + 1 :], *behind]
            # the next operator reads it, that is the chain
            for index, reader in enumerate(later):
                if index and tensor in reads(reader):
                    return True
                if any((float(t.size_bytes), t.dtype) == tensor for t in reader.tensors() if t.writes):
                    break
    return False


def fusion_left(case: Case, neighbours: Neighbours) -> list[str]:
    """Return neighbours that look like a fusion and are none, with the reason; those that take longest, each once."""
    listed: dict[str, tuple[float, str]] = {}
    # chains are left alone where their registers do not fit
    for pair, count in (*neighbours.mixed.items(), *neighbours.chains.items()):
        made, name = neighbours.fused(pair), neighbours.names(pair)
        time_s = made.time_s * count / case.gpus
        if made.verdict != FUSE and time_s >= max(LEAST_GAIN * case.total_s, listed.get(name, (0.0, ""))[0]):
            listed[name] = (time_s, f"{name} ({times(count)}): {made.verdict}; {made.reason}.")
    return [text for _, text in sorted(listed.values(), key=lambda one: -one[0])[:_LEFT]]


def times(count: int) -> str:
    """Return a count as people say it.

    >>> times(1), times(3)
    ('once', '3 times')
    """
    return "once" if count == 1 else f"{count} times"
