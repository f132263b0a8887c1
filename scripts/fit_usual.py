"""What is usual among families that are alike, for those of which few machines or libraries were measured."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from fit_deviations import (
    ASSUMED_SIBLING,
    GENERATIONS,
    LINES,
    OF_ATTENTION,
    OF_COLLECTIVES,
    OF_DISPATCHED,
    OF_ENGINE,
    OF_OTHERS,
    OF_VENDOR,
    SIBLINGS,
    VENDORS,
    LeftOut,
    LibraryOffsets,
    growth,
    library_deviations,
    link_deviation,
    machine_deviation,
    usual_deviation,
)
from fit_shared import ASSUMED_LINK, Shared

from perfmodel.core.latency_table import REGIMES, LatencyTable
from perfmodel.prediction.latency.family import HOST_CONSTANTS

#: deviation of the hosts of machines whose calls they dispatch: hosts of a few machines, most of them of one
#: laboratory, may be alike by chance
HOST_SPREAD = next(constant.spread for constant in HOST_CONSTANTS if constant.name == "host")
EXPERTS = ("moe_bf16", "moe_fp8", "moe_fp8_block", "moe_int4", "moe_fp4", "moe_mxfp4", "moe_mxfp4_fp8")
ATTENTION = ("attention_prefill", "attention_decode")
COLLECTIVES = ("all_reduce", "all_gather", "reduce_scatter", "alltoall", "collective_host")
#: families that differ in the same way between machines: their offsets together are what is typical. The vendor's
#: products and convolutions; engines' own products and experts, whose kernels are written for one generation, and tuned
#: for it or not; attention; collectives; streams
ALIKE = (
    ("gemm_fp32", "gemm_bf16", "gemm_fp8", "conv2d"),
    ("gemm_w4a16", "gemm_w8a16", "gemm_w8a8", "gemm_fp8_block", *EXPERTS),
    ATTENTION,
    COLLECTIVES,
    ("elementwise", "layer_norm", "softmax", "rms_norm", "rope", "embedding"),
)
#: families whose libraries differ alike, and what is assumed of them
LIBRARIES_ALIKE = (
    (("gemm_fp32", "gemm_bf16"), OF_VENDOR),
    (("gemm_fp8",), OF_ENGINE),
    (("gemm_fp8_block",), OF_DISPATCHED),
    (EXPERTS, OF_ENGINE),
    (ATTENTION, OF_ATTENTION),
    (COLLECTIVES, OF_COLLECTIVES),
)


@dataclass(frozen=True)
class Usual:
    """What is usual in families like one.

    Attributes
    ----------
    machines : the deviation in each regime between machines of each kind of parts.
    grown : variance by which the shapes of another generation spread more than those of machines that were fitted.
    libraries : source of error -> what libraries of the family differ by, which it is drawn to that of others for.
    link : the deviation in each regime of a kind of link that nobody measured.
    """

    machines: Mapping[str, Sequence[float]]
    grown: Sequence[float]
    libraries: Mapping[str, tuple[float, ...]]
    link: tuple[float, ...] = ASSUMED_LINK


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
                expected[0] = max(expected[0], HOST_SPREAD)
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
    alike = next((group for group in ALIKE if name in group), (name,))
    machines = {SIBLINGS: (ASSUMED_SIBLING,) * len(REGIMES)}
    for between in (GENERATIONS, LINES):
        every = {other: fitted.apart(between) for other, fitted in found.items()}
        machines[between] = usual_deviation([every[other] for other in alike if other in every], list(every.values()))
    # Machines of another line, or of another vendor, are of another generation, too. What is a vendor's has its own
    # source of error.
    machines[LINES] = tuple(map(max, machines[LINES], machines[GENERATIONS]))
    machines[VENDORS] = machines[GENERATIONS]
    shared = [table for other in alike if other in found for table in found[other].shared.values()]
    grown = growth((table.machines, table.known) for table in shared if table.between != SIBLINGS)
    exchanged = [one for table in shared if table.table.links for one in table.machines]
    link = link_deviation(exchanged, machines[GENERATIONS], ASSUMED_LINK)
    return Usual(machines, grown, _of_libraries(name, found), link)


def _of_libraries(name: str, found: Mapping[str, FittedFamily]) -> dict[str, tuple[float, ...]]:
    """Return what libraries differ by in a family."""
    alike, assumed = next((kind for kind in LIBRARIES_ALIKE if name in kind[0]), ((name,), OF_OTHERS))
    offsets = {other: made.shared["generic"].libraries or LibraryOffsets() for other, made in found.items()}
    return library_deviations(
        offsets[name], [offsets[other] for other in alike if other in found.keys() - {name}], assumed
    )
