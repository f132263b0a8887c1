"""Copies: bytes over PCIe at the share of its bandwidth that copies reach, and within a device at that of streams."""

from __future__ import annotations

from typing import Any

import numpy as np

from perfmodel.core.hardware import Link
from perfmodel.core.vocabulary import ErrorSource
from perfmodel.operators.base import Operator
from perfmodel.operators.collective import Collective
from perfmodel.operators.memcpy import Memcpy
from perfmodel.prediction.ceilings import ASSUMED_LAUNCH_S, ASSUMED_LINK, launch_time
from perfmodel.prediction.conditions import Conditions
from perfmodel.prediction.copies import as_run, stays_within
from perfmodel.prediction.latency import elementwise, stream
from perfmodel.prediction.latency.doubts import Doubt
from perfmodel.prediction.latency.family import Constant, Family, Values
from perfmodel.prediction.latency.machine import NVIDIA, Machine
from perfmodel.prediction.latency.streams import STREAM_TERMS
from perfmodel.prediction.latency.terms import LAUNCH, Term, Terms, link_term

SERVES = {
    "memcpy": ("memcpy",),
    "memcpy_device": ("memcpy", "all_reduce", "all_gather", "reduce_scatter", "alltoall", "broadcast", "send_recv"),
}

PCIE = link_term("pcie")
#: what superchips have in place of PCIe, as their specifications name it
C2C = link_term("pcie", "NVLink-C2C")
#: standard deviation of ln(measured / predicted) over hosts and devices that nobody measured: of 89 published copies of
#: 36 sources the middle 80 % take 0.94 to 1.31 times as long as predicted from 1 ms on, where most cross PCIe, 0.97 to
#: 1.15 from 0.1 ms to that, where most stay in a device, and 1.05 to 1.4 from 20 us (`examples/published`, in view).
#: Shorter ones are assumed
OF_HOSTS, OF_DEVICES = (0.4, 0.2, 0.16), (0.4, 0.25, 0.10)
#: the same of memory that the host copies first, where hosts differ twofold: assumed
PAGEABLE = (0.5, 0.5, 0.5)
#: start of a copy by the engines of NVIDIA's devices, as profilers time it [s]: the smallest of four open traces take
#: 0.8 us to an H100 and, in whole microseconds, 1 us to an A100 and two V100, those of two take 2.2 and 2.4 us from an
#: H100 (AMD-AGI/TraceLens @ 171dd74721ca, HolisticTraceAnalysis, Kineto, nsys-ai)
START_S = {"h2d": 1.0e-6, "d2h": 2.3e-6}


def formula(op: Operator, machine: Machine, c: Values, conditions: Conditions) -> Terms:
    """Return the terms of t = launch + bytes / (share B), with B the datasheet bandwidth of PCIe or what replaces it.

    Pinned memory is read by the device itself; pageable memory passes through a pinned buffer that the host fills. A
    rate that was measured on the machine, in ``[sustained.link]``, takes the place of share B.
    """
    assert isinstance(op, Memcpy)
    share, measured = c["pinned" if op.pinned else "pageable"], _measured(op, machine)
    link = machine.links["pcie"]
    time, term = op.bytes / (measured or share * link.bandwidth_bytes_per_s), _term(link)
    return Terms({term: time, LAUNCH: _start_s(op, machine)}, {term: time})


def _term(link: Link) -> Term:
    """Return the term for the traffic over the link between host and device."""
    known = {"": PCIE, C2C: C2C}
    return known.get(link.technology) or link_term(link.name, link.technology)


def _start_s(op: Memcpy, machine: Machine) -> float:
    """Return the start of a copy [s]; on machines of others it is that of a kernel."""
    if machine.hardware is None or machine.hardware.vendor != NVIDIA:
        return launch_time(machine.hardware) if machine.hardware else ASSUMED_LAUNCH_S
    return START_S[op.direction]


def _measured(op: Memcpy, machine: Machine) -> float | None:
    """Return the measured rate of such copies, or None [B/s]."""
    return machine.hardware.sustained_links.get(_kind(op)) if machine.hardware else None


def _kind(op: Memcpy) -> str:
    return "pcie" if op.pinned else "pcie_pageable"


def basis(op: Operator, machine: Machine, terms: Terms) -> str:
    """Return which rate sets the prediction: one measured on the machine, or a fitted or assumed share of PCIe's."""
    assert isinstance(op, Memcpy)
    link = machine.links["pcie"]
    if _measured(op, machine):
        return f"sustained {_term(link)}"
    share = float(np.max(op.bytes / (terms.adds[_term(link)] * link.bandwidth_bytes_per_s)))
    fitted = machine.hardware is not None and "memcpy" in machine.hardware.latency
    return f"{'fitted' if fitted else 'assumed'} {share:.0%} of datasheet {_term(link)}"


def _crosses(op: Operator, machine: Machine, library: str) -> bool:
    """Return whether a copy leaves the device, at a rate that the machine states or somebody measured on it."""
    if not isinstance(op, Memcpy) or op.direction == "d2d" or "pcie" not in machine.links:
        return False
    return _measured(op, machine) is not None or not _shares(op, machine)


def _shares(op: Memcpy, machine: Machine) -> bool:
    return machine.hardware is not None and stays_within(op, machine.hardware)


def _is_pageable(op: Operator, machine: Machine, conditions: Conditions) -> bool:
    return not getattr(op, "pinned", True)


FAMILY = Family(
    "memcpy",
    (
        Constant("pinned", "", ASSUMED_LINK["pcie"], 0.1, 1.0, 0.1, "share of PCIe with page-locked host memory"),
        Constant("pageable", "", ASSUMED_LINK["pcie_pageable"], 0.05, 1.0, 0.3, "share of PCIe with other host memory"),
    ),
    formula,
    (PCIE, C2C, LAUNCH),
    applies=_crosses,
    dispatched=False,
    dispatched_like=elementwise.FAMILY,
    by_dtype=False,
    basis=basis,
    unmeasured=OF_HOSTS,
    doubts=(Doubt(ErrorSource.KERNEL, _is_pageable, PAGEABLE),),
)


def _within(op: Operator, machine: Machine, library: str) -> Any:
    """Return the copies that stay within a device: a mask, True or False."""
    if isinstance(op, Collective):
        return op.num_gpus == 1
    if not isinstance(op, Memcpy):
        return False
    return op.direction == "d2d" or (_shares(op, machine) and not _crosses(op, machine, library))


def within_formula(op: Operator, machine: Machine, c: Values, conditions: Conditions) -> Terms:
    """Return the terms of a copy that reads and writes one memory: those of a stream.

    Of a rank alone NCCL copies the message from the one buffer to the other (ncclLaunchOneRank, src/device/onerank.cu,
    github.com/NVIDIA/nccl); where both are one it does nothing.
    """
    if isinstance(op, Collective):
        copy: Operator = Memcpy(bytes=op.bytes, direction="d2d")
    else:
        copy = as_run(op, machine.hardware) if machine.hardware else op
    return stream.formula(copy, machine, c, conditions)


#: a copy within the device is a kernel that streams, or an engine of the memory that does; pageable memory of the host
#: may be copied by the host, where both share it
WITHIN = Family(
    "memcpy_device",
    stream.CONSTANTS,
    within_formula,
    STREAM_TERMS,
    applies=_within,
    dispatched_like=elementwise.FAMILY,
    streams=True,
    by_dtype=False,
    unmeasured=OF_DEVICES,
    doubts=(Doubt(ErrorSource.KERNEL, _is_pageable, PAGEABLE),),
)
FAMILIES = (FAMILY, WITHIN)
