"""What is usual among families that are alike, for those of which few machines or libraries were measured."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from fit_deviations import (
    ASSUMED_SIBLING,
    GENERATIONS,
    LIBRARY_KEYS,
    LINES,
    OF_ATTENTION,
    OF_COLLECTIVES,
    OF_DISPATCHED,
    OF_ENGINE,
    OF_EXPERTS,
    OF_LOOK_UPS,
    OF_STREAMS,
    OF_VENDOR,
    SIBLINGS,
    VENDORS,
    LeftOut,
    LibraryOffsets,
    growth,
    library_deviations,
    link_deviation,
    machine_deviation,
    usual_libraries,
    usual_machines,
)
from fit_hierarchy import Expected, assumed
from fit_shared import Shared

from perfmodel.core.latency_table import REGIMES, LatencyTable
from perfmodel.prediction.latency.family import HOST_CONSTANTS
from perfmodel.prediction.latency.far import ANOTHER_LINK

#: deviation of the hosts of machines whose calls they dispatch: hosts of a few machines, most of them of one
#: laboratory, may be alike by chance
HOST_SPREAD = next(constant.spread for constant in HOST_CONSTANTS if constant.name == "host")
EXPERTS = ("moe_bf16", "moe_fp8", "moe_fp8_block", "moe_int4", "moe_fp4", "moe_mxfp4", "moe_mxfp4_fp8")
ATTENTION = ("attention_prefill", "attention_decode")
STREAMS = ("elementwise", "layer_norm", "softmax", "rms_norm", "rope", "embedding")
COLLECTIVES = ("all_reduce", "all_gather", "reduce_scatter", "alltoall", "collective_host")
#: families that differ in the same way between machines: their offsets together are what is typical. The vendor's
#: products and convolutions; engines' own products and experts, whose kernels are written for one generation, and tuned
#: for it or not; attention; collectives; streams
ALIKE = (
    ("gemm_fp32", "gemm_bf16", "gemm_fp8", "conv2d"),
    ("gemm_w4a16", "gemm_w8a16", "gemm_w8a8", "gemm_fp8_block", *EXPERTS),
    ATTENTION,
    COLLECTIVES,
    STREAMS,
)
#: families whose libraries differ alike, and what is assumed of them. Those of all others differ as these usually do
LIBRARIES_ALIKE = (
    (("gemm_fp32", "gemm_bf16"), OF_VENDOR),
    (("gemm_fp8",), OF_ENGINE),
    (("gemm_fp8_block",), OF_DISPATCHED),
    (EXPERTS, OF_EXPERTS),
    (ATTENTION, OF_ATTENTION),
    (COLLECTIVES, OF_COLLECTIVES),
    (("embedding",), OF_LOOK_UPS),
    (("elementwise", "layer_norm", "softmax", "rms_norm", "rope"), OF_STREAMS),
)


@dataclass(frozen=True)
class Usual:
    """What is usual in families like one.

    Attributes
    ----------
    machines : what is usual in each regime between machines of each kind of parts.
    grown : variance by which the shapes of another generation spread more than those of machines that were fitted.
    libraries : source of error -> what libraries of the family differ by, which it is drawn to that of others for.
    link : the deviation in each regime of a kind of link that nobody measured.
    """

    machines: Mapping[str, Sequence[Expected]]
    grown: Sequence[float]
    libraries: Mapping[str, tuple[float, ...]]
    link: tuple[float, ...] = ANOTHER_LINK


@dataclass(frozen=True)
class FittedFamily:
    """A family's tables by file, from the widest to the narrowest: shared ones, and those of each machine."""

    shared: dict[str, Shared]
    machines: dict[str, LatencyTable]

    def apart(self, between: str) -> list[LeftOut]:
        """Return the machines that were left out of all tables with parts of a kind."""
        return [machine for found in self.shared.values() if found.between == between for machine in found.machines]

    def tables(self, usual: Usual) -> dict[str, LatencyTable]:
        """Return all tables, with the deviation of a machine that is none of theirs; see `Shared.next_machine`.

        A table of one part does not tell how much more the shapes of another one spread: that is what is usual.
        """
        made = {}
        for name, found in self.shared.items():
            factor = found.next_machine(self.shared["generic"].parts)
            grown = usual.grown if not found.machines and found.between != SIBLINGS else (0.0,) * len(REGIMES)
            expected = [*usual.machines[found.between]]
            if not found.own_host:  # the host of a sibling is any other
                expected[0] = usual.machines[GENERATIONS][0]
            if found.by_host:
                expected[0] = expected[0].at_least(HOST_SPREAD)
            deviation = machine_deviation(found.machines, expected)
            machine = tuple(math.hypot(s * factor, math.sqrt(more)) for s, more in zip(deviation, grown, strict=True))
            libraries = usual.libraries if found.libraries else {}
            link = {"link": usual.link} if name == "generic" and found.table.links else {}
            made[name] = dataclasses.replace(
                found.table, deviations={"machine": machine, **found.table.deviations, **libraries, **link}
            )
        return {**made, **self.machines}


def usual_in(name: str, found: Mapping[str, FittedFamily]) -> Usual:
    """Return what is usual in families like one, given all that were fitted."""
    kind, kinds = _kind(name, ALIKE), _kinds(found, ALIKE)
    machines = {SIBLINGS: [assumed(deviation) for deviation in ASSUMED_SIBLING]}
    for between in (GENERATIONS, LINES):
        every = {key: [found[other].apart(between) for other in families] for key, families in kinds.items()}
        machines[between] = [regime.kind(kind) for regime in usual_machines(every)]
    # Machines of another line, or of another vendor, are of another generation, too. What is a vendor's has its own
    # source of error.
    near = machines[GENERATIONS]
    machines[LINES] = [
        far.at_least(math.sqrt(one.variance.value)) for far, one in zip(machines[LINES], near, strict=True)
    ]
    machines[VENDORS] = near
    shared = [table for other in kinds[kind] for table in found[other].shared.values()]
    grown = growth((table.machines, table.known) for table in shared if table.between != SIBLINGS)
    exchanged = [one for table in shared if table.table.links for one in table.machines]
    of_machines = [math.sqrt(one.variance.value) for one in near]
    link = link_deviation(exchanged, of_machines, [assumed(before) for before in ANOTHER_LINK])
    return Usual(machines, grown, _of_libraries(name, found), link)


def _of_libraries(name: str, found: Mapping[str, FittedFamily]) -> dict[str, tuple[float, ...]]:
    """Return what libraries differ by in a family."""
    offsets = {other: made.shared["generic"].libraries or LibraryOffsets() for other, made in found.items()}
    groups = [group for group, _ in LIBRARIES_ALIKE]
    others = _kinds(found.keys() - {name}, groups)
    kinds = {key: [offsets[other] for other in families] for key, families in others.items()}
    before = {group[0]: expected for group, expected in LIBRARIES_ALIKE}
    kind = _kind(name, groups)
    usual = {key: [regime.kind(kind) for regime in usual_libraries(kinds, before, key)] for key in LIBRARY_KEYS}
    return library_deviations(offsets[name], kinds.get(kind, ()), list(offsets.values()), usual)


def _kind(name: str, groups: Sequence[Sequence[str]]) -> str:
    """Return the name of the kind of a family: the first of its group, or its own where it is in none."""
    return next((group[0] for group in groups if name in group), name)


def _kinds(found: Iterable[str], groups: Sequence[Sequence[str]]) -> dict[str, list[str]]:
    """Return the families of each kind."""
    kinds: dict[str, list[str]] = {}
    for name in found:
        kinds.setdefault(_kind(name, groups), []).append(name)
    return kinds
