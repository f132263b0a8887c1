"""The sustained roofline: for operators and machines without a closed form of their own."""

from __future__ import annotations

from collections.abc import Mapping

from perfmodel.core.hardware import Hardware
from perfmodel.core.roofline import bound
from perfmodel.core.vocabulary import ErrorSource
from perfmodel.core.work import Number, anywhere, where
from perfmodel.operators.base import Operator
from perfmodel.operators.collective import Collective
from perfmodel.operators.gemm import Gemm
from perfmodel.prediction.ceilings import (
    ASSUMED_LINK,
    Ceilings,
    ceiling_times,
    datasheet_ceilings,
    launch_time,
    link_load,
    link_traffic,
    sustained_ceilings,
)
from perfmodel.prediction.conditions import Conditions
from perfmodel.prediction.latency.collective_lines import OTHER_RANKS
from perfmodel.prediction.latency.doubts import Doubt
from perfmodel.prediction.latency.family import Family, Values
from perfmodel.prediction.latency.gemm.unmeasured import NOBODYS_TABLE
from perfmodel.prediction.latency.machine import NVIDIA, Machine
from perfmodel.prediction.latency.terms import CEILING_TERMS, LAUNCH, MATH, SYNCHRONISATION, Term, Terms, ceiling_term
from perfmodel.prediction.network import crossing
from perfmodel.prediction.topology import inside, network_between, on_network, peer_links, spread_of

#: operators that no family serves go to it in `families_of`, as do copies on machines without PCIe
SERVES: dict[str, tuple[str, ...]] = {"roofline": ()}


def formula(op: Operator, machine: Machine, c: Values, conditions: Conditions) -> Terms:
    """Return the terms of t = launch overhead + max over ceilings of (work / sustained rate).

    A collective adds the measured latency of its link for each step of the ring or tree, alpha of the alpha-beta model
    (R. W. Hockney, "The communication challenge for MPP", Parallel Computing 20, 1994).

    This is the roofline with rates that good kernels reach instead of the datasheet's, and the cost of starting a
    kernel. Where the specification lacks a figure, the share of measured machines of its generation takes its place,
    else that of all. Tiles, waves and caches are not in it.
    """
    hardware = _hardware(machine)
    links = link_load(op, hardware)
    times = ceiling_times(op.work(), _ceilings(op, machine, links), links)
    slowest = bound(times)
    adds: dict[Term, Number] = {
        ceiling_term(name): where(slowest.limiter_code == index, slowest.time_s, 0.0)
        for index, name in enumerate(slowest.names)
    }
    alone = {ceiling_term(name): time for name, time in times.items()}
    if isinstance(op, Collective):
        adds[SYNCHRONISATION] = waits(op, hardware)
    return Terms({**adds, LAUNCH: launch_time(hardware)}, alone)


def step_latency(op: Collective, hardware: Hardware) -> Number:
    """Return the measured time of one step of an exchange over the link that joins its GPUs, 0 where unknown [s]."""
    latency: Number = 0.0
    for link, here in peer_links(hardware.links, op.num_gpus):
        latency = where(here, link.latency_s or 0.0, latency)
    return latency


def waits(op: Collective, hardware: Hardware) -> Number:
    """Return the time of the steps of an exchange, in its nodes and over the network between them [s]."""
    spread = spread_of(op, hardware)
    node = inside(op, spread)
    time_s = step_latency(node, hardware) * node.steps()
    if not anywhere(spread.crosses):
        return time_s
    network = network_between(op, hardware, spread)
    return time_s + on_network(spread, crossing(network, op.op, op.bytes).steps_s)


def basis(op: Operator, machine: Machine, terms: Terms) -> str:
    """Return which figures set the prediction: sustained ones, assumed ones, or a link's datasheet."""
    hardware = _hardware(machine)
    links = link_traffic(op, hardware)
    ceilings, sheet_rates = _ceilings(op, machine, links), datasheet_ceilings(hardware, machine.peak, links)
    starts = (LAUNCH, SYNCHRONISATION)
    setting = [name for name, time in terms.adds.items() if anywhere(time > 0) and name not in starts]
    names = [*("compute" if name == MATH else str(name) for name in setting), "launch"]
    shares = {name: f"{rate / sheet_rates.memory[name]:.0%} of datasheet " for name, rate in ceilings.memory.items()}
    if ceilings.compute and sheet_rates.compute:
        shares["compute"] = f"{ceilings.compute / sheet_rates.compute:.0%} of datasheet "
    pinned = getattr(op, "pinned", True)
    shares |= {name: f"{ASSUMED_LINK[kind]:.0%} of datasheet " for name in ceilings.links
               if (kind := name if pinned else f"{name}_pageable") in ASSUMED_LINK}  # fmt: skip
    shares["launch"] = f"{launch_time(hardware) * 1e6:.1f} us of "
    measured = [name for name in names if name in ceilings.sustained]
    assumed = [f"{shares[name]}{name}" for name in names if name not in measured and name in shares]
    sheet = [name for name in names if name not in measured and name not in shares]
    parts = (("sustained", measured), ("assumed", assumed), ("datasheet", sheet))
    return ", ".join(f"{word} {' + '.join(names)}" for word, names in parts if names)


def _ceilings(op: Operator, machine: Machine, links: Mapping[str, Number]) -> Ceilings:
    """Return the sustained ceilings of a machine for an operator that crosses some links."""
    pinned = getattr(op, "pinned", True)
    key = (Ceilings, *links, pinned)
    if key not in machine.cache:
        machine.cache[key] = sustained_ceilings(_hardware(machine), machine.peak, links, pinned=pinned)
    ceilings: Ceilings = machine.cache[key]
    return ceilings


def _hardware(machine: Machine) -> Hardware:
    assert machine.hardware is not None, "the roofline needs all ceilings: build the machine with Machine.of"
    return machine.hardware


def _is_product(op: Operator, machine: Machine, conditions: Conditions) -> bool:
    """Whether a call multiplies matrices on a GPU, in a dtype without kernels of a family."""
    return isinstance(op, Gemm) and not machine.is_cpu


#: the interval is that of products on NVIDIA's machines, in dtypes that have tables, and those on others have none: the
#: medians of four libraries in mxfp8 on MI300X and MI355X take 2.2 to 3.5 times the predicted time
#: (`examples/published`, in view)
PRODUCTS_OF_OTHERS = Doubt(
    ErrorSource.VENDOR, _is_product, (0.5, 0.8, 0.8), machines=lambda hardware: hardware.vendor != NVIDIA
)
#: the constants are the specification's ``[sustained]`` and ``[launch]``; only those of the host are fitted
FAMILY = Family(
    "roofline", (), formula, (*CEILING_TERMS, LAUNCH, SYNCHRONISATION), basis=basis, of_any_kind=True,
    doubts=(*OTHER_RANKS, NOBODYS_TABLE, PRODUCTS_OF_OTHERS),
)  # fmt: skip
FAMILIES = (FAMILY,)
