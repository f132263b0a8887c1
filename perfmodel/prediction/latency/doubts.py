"""Calls that are less sure than others of their family, why, and by how much."""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from perfmodel.core.hardware import Hardware
from perfmodel.core.latency_table import REGIMES
from perfmodel.core.vocabulary import ErrorSource
from perfmodel.core.work import anywhere, everywhere
from perfmodel.prediction.conditions import Conditions
from perfmodel.prediction.latency import dispatch
from perfmodel.prediction.latency.effects import Stated, Stating, of_one_kind, with_effects
from perfmodel.prediction.latency.machine import Machine

#: (operator, machine, conditions) -> the calls that something holds for, a mask
About = Callable[[Any, Machine, Conditions], Any]
_NOTHING = (0.0,) * len(REGIMES)


def _on_any(hardware: Hardware) -> bool:
    return True


def _states_nothing(hardware: Hardware) -> None:
    return None


@dataclass(frozen=True)
class Doubt:
    """Calls that are less sure than others of their family, and by how much.

    Attributes
    ----------
    source : why: sizes that take other kernels, so that few rows or none tell of them (``EXTRAPOLATION``), a library
        whose releases differ (``RELEASE``), a host that nobody measured (``DISPATCH``), a board whose power limit sets
        the clock (``POWER``), data that a cache keeps (``CACHE``), or kernels of a kind without rows (``KERNEL``).
    about : the calls.
    deviation : standard deviation that they add to ln(measured / predicted), in each regime: less at launch, where the
        doubt is about less than half of the time.
    part_of : a source of error whose deviation holds this one; there it adds nothing.
    machines : the machines that may have such calls, asked once for each; calls of others are not asked about.
    of_machine : what a machine states of such calls instead of ``deviation``; None where it states nothing.
    by_size : whether sizes of a call decide; else its settings, the machine and the conditions do, which are asked
        about once.
    lasting : whether rows of such calls do not take it away, since each tells of its own kernel alone; nor do they keep
        other doubts of the same source.
    """

    source: ErrorSource
    about: About
    deviation: tuple[float, float, float]
    part_of: ErrorSource | None = None
    machines: Callable[[Hardware], bool] = _on_any
    by_size: bool = True
    lasting: bool = False
    of_machine: Callable[[Hardware], tuple[float, float, float] | None] = _states_nothing

    def on(self, hardware: Hardware) -> Doubt:
        """Return the doubt as it is about calls of a machine."""
        stated = self.of_machine(hardware)
        return self if stated is None else replace(self, deviation=stated)


@dataclass(frozen=True, eq=False)
class Doubted:
    """How sure the constants of a machine are of the calls that a family doubts.

    Several doubts about a call are independent reasons to be wrong: their variances add, also those of one source. What
    the constants have not seen may have the source of a doubt, too, which is then another word for the same; the larger
    of the two counts.

    Attributes
    ----------
    doubts : those that the machine has, each with what it adds to ln(measured / predicted) in each regime.
    shape, effects : the intervals of calls without a doubt, and the deviations of what the constants have not seen.
    within : the intervals of those calls that the family tells apart, or that lie inside the data of a surface; None
        where there are no such.
    one_kind : whether what shapes differ by is one error of all shapes of a kind of kernel.
    """

    doubts: tuple[tuple[Doubt, tuple[float, ...]], ...] = ()
    shape: Mapping[str, tuple[float, float]] | None = None
    effects: Mapping[ErrorSource, tuple[float, ...]] | None = None
    within: Mapping[str, tuple[float, float]] | None = None
    one_kind: bool = False

    @functools.cached_property
    def _by_size(self) -> list[tuple[int, About]]:
        """The bit of each doubt that sizes decide, and the calls that it is about."""
        return [(1 << place, doubt.about) for place, (doubt, _) in enumerate(self.doubts) if doubt.by_size]

    def of_any_size(self, op: Any, machine: Machine, conditions: Conditions) -> int:
        """Return the doubts that are about all calls of an operator's settings under some conditions: bit i for i."""
        others = [(1 << place, doubt) for place, (doubt, _) in enumerate(self.doubts) if not doubt.by_size]
        return sum(bit for bit, doubt in others if doubt.about(op, machine, conditions))

    @functools.cached_property
    def _stated(self) -> dict[tuple[int, bool], Stated]:
        return {}

    def stated(self, which: int, within: bool = False) -> Stated:
        """Return how sure the constants are of calls that some doubts are about: bit i for the i-th."""
        found = self._stated.get((which, within))
        if found is None:
            found = self._stated[which, within] = self._of(which, self.within if within else self.shape)
        return found

    def _of(self, which: int, shape: Mapping[str, tuple[float, float]] | None) -> Stated:
        assert shape is not None
        assert self.effects is not None
        added: dict[ErrorSource, tuple[float, ...]] = {}
        for place, (doubt, deviation) in enumerate(self.doubts):
            if which >> place & 1:
                added[doubt.source] = tuple(map(math.hypot, added.get(doubt.source, _NOTHING), deviation))
        for source in added.keys() & self.effects.keys():
            added[source] = tuple(map(max, added[source], self.effects[source]))
        intervals, variances = with_effects(shape, {**self.effects, **added})
        return Stated(intervals, of_one_kind(variances) if self.one_kind else variances)

    def kinds(
        self, op: Any, machine: Machine, conditions: Conditions, of_all: int, within: Any = False
    ) -> list[tuple[Any, Stating]]:
        """Return masks of the calls that the same doubts are about, without those of none, and how sure these are.

        The first mask that holds for a call is its own: of those ``within``, where they have intervals of their own,
        it comes before that of all.

        Parameters
        ----------
        op, machine, conditions : the calls.
        of_all : the doubts that are about calls `of_any_size`.
        within : the calls that have intervals of their own.
        """
        kinds: list[tuple[Any, Stating]] = []
        for mask, which in self._which(op, machine, conditions, of_all):
            if self.within is not None and anywhere(here := mask & within):
                kinds.append((here, self.stated(which, within=True)))
            kinds.append((mask, self.stated(which)))
        return kinds

    def _which(self, op: Any, machine: Machine, conditions: Conditions, of_all: int) -> Iterable[tuple[Any, int]]:
        """Return masks of the calls that the same doubts are about, and which these are: bit i for the i-th."""
        of_some = []
        for bit, about in self._by_size:
            mask = about(op, machine, conditions)
            if mask is False:
                continue
            if everywhere(mask):
                of_all |= bit
            elif anywhere(mask):
                of_some.append((mask, bit))
        if not of_some:
            return ((True, of_all),) if of_all else ()
        groups: list[tuple[Any, int]] = [(True, of_all)]
        for mask, bit in of_some:
            halves = [((here & mask, which | bit), (here & ~mask, which)) for here, which in groups]
            groups = [(here, which) for pair in halves for here, which in pair if anywhere(here)]
        return sorted(((here, which) for here, which in groups if which), key=operator.itemgetter(1))


#: standard deviation of ln(dispatch) over hosts. Between those of eight machines under one release of PyTorch ``host``
#: has 0.23 (products), 0.34 (LayerNorm), 0.37 (softmax) and 0.42 (elementwise); steps of one decoder on an H100 and an
#: H200, which wait for the host, took 27 to 70 ms from run to run (`examples/records`)
HOST_DEVIATION = 0.4


def _on_another_host(op: Any, machine: Machine, conditions: Conditions) -> bool:
    """Whether the time holds a dispatch, by a host that is not known to be one of those measured."""
    return conditions.timing.includes_host and not dispatch.is_measured(conditions)


def _by_any_caller(op: Any, machine: Machine, conditions: Conditions) -> bool:
    """Whether the time holds a dispatch, by a program or by Python."""
    return conditions.timing.includes_host and dispatch.is_of_its_author(conditions)


#: in "mid" up to half of the time is the part of the dispatch that no kernel hides, a third in the middle; in "large"
#: it is little. What a machine differs by from others of its kind says nothing of its host
OTHER_HOST = Doubt(ErrorSource.DISPATCH, _on_another_host, (HOST_DEVIATION, HOST_DEVIATION / 3.0, 0.0), by_size=False)
#: a program takes a third of what Python takes to call a kernel (`perfmodel.prediction.latency.dispatch`)
ANY_CALLER = Doubt(ErrorSource.DISPATCH, _by_any_caller, (0.5, 0.2, 0.0), by_size=False)


def _with_dispatch(op: Any, machine: Machine, conditions: Conditions) -> bool:
    """Whether the time holds a dispatch."""
    return conditions.timing.includes_host and not machine.is_cpu


#: of calls whose dispatch no table tells, so that another family's stands for it: assumed to be as far off as hosts are
NO_DISPATCH = Doubt(
    ErrorSource.DISPATCH, _with_dispatch, (HOST_DEVIATION, 0.25 * HOST_DEVIATION, 0.0), lasting=True, by_size=False
)


#: releases of PyTorch whose kernels the constants were fitted to, each in one laboratory: NeuSight's, and our own
MEASURED_TORCH = ((2, 1), (2, 11))


def in_another_pytorch(op: Any, machine: Machine, conditions: Conditions) -> bool:
    """Whether a call runs in PyTorch elsewhere than where its kernels were measured, or in no library that is named."""
    return not conditions.library or (conditions.library == "torch" and conditions.release[:2] not in MEASURED_TORCH)


def _in_pytorch_1(op: Any, machine: Machine, conditions: Conditions) -> bool:
    """Whether a call runs in a release of PyTorch before 2.0."""
    return conditions.library == "torch" and bool(conditions.release) and conditions.is_before(2)


#: what installations of PyTorch differ by in norms, softmax and losses of rows, and in kernels that run one after
#: another, of which three sources tell: root mean square of the medians of
#: ln(measured / predicted) of 13 pairs of source and machine, 0.21 (`examples/published` and Liger-Kernel's data, in
#: view), without the 0.13 that machines and dtypes without rows add anyway. Norms on a B200 have a doubt of their own
ROWS_ELSEWHERE = Doubt(
    ErrorSource.INSTALLATION, in_another_pytorch, (0.16, 0.16, 0.16), part_of=ErrorSource.LIBRARY, by_size=False
)
#: what kernels of PyTorch 1 differ by, most of which were written anew since: a sort of two million keys takes a P100
#: six times as long in 1.1 (github.com/pytorch/pytorch issue 22812, in view); assumed for the others
PYTORCH_1 = Doubt(ErrorSource.RELEASE, _in_pytorch_1, (0.4, 0.8, 0.8), by_size=False)
#: who writes kernels for many: the vendors' libraries, frameworks, and what they are compiled by
TUNED = (
    "", "torch", "cub", "thrust", "cupy", "cudf", "rocprim", "hipcub", "kokkos", "jax", "xla", "triton", "inductor",
    "liger", "flaggems", "quack", "helion", "hipkittens", "apex", "cudnn", "miopen", "sglang", "vllm", "trtllm",
    "vidur", "flashinfer", "aiter", "tensorflow", "tensorrt", "onnxruntime", "paddle", "mlx",
)  # fmt: skip


def by_hand(op: Any, machine: Machine, conditions: Conditions) -> bool:
    """Whether a kernel is its author's own, or of a library that few people tune."""
    return conditions.caller not in TUNED


#: what such kernels differ by whose blocks have to exchange results, beside ``NEW_KERNEL``: 17 scans by hand of seven
#: authors take 2.2 times the predicted time in the mean of ln, with a root mean square of 0.93, four softmax of two
#: authors 2.4 to 4 times, nine sorts of two small libraries 1.9 to 9 times (`examples/published`, in view). Streams,
#: sums and transposes by hand take what others do
BY_HAND = Doubt(ErrorSource.LIBRARY, by_hand, (0.7, 0.7, 0.7), lasting=True, by_size=False)


def is_radeon(hardware: Hardware) -> bool:
    """Return whether a machine is one of AMD's Radeons of which no table has a row."""
    return hardware.matrix_instruction == "wmma"


def _any(op: Any, machine: Machine, conditions: Conditions) -> bool:
    return True


#: kernels bound by memory on Radeons, whose vendor's Instincts alone have rows: four additions and six softmax of
#: PyTorch on a Radeon Pro W7900 take 1.09 to 2.6 times the predicted time, ln with a root mean square of 0.6 below
#: 0.3 ms and 0.35 above (one source of `examples/published`, ROCm 6.0, in view)
STREAMS_ON_RADEON = Doubt(ErrorSource.KERNEL, _any, (0.6, 0.6, 0.35), machines=is_radeon, by_size=False)
