"""How fast a GPU of a cluster copies to and from its host, and how fast the host's CPUs update parameters for it."""

from __future__ import annotations

import math
from typing import NamedTuple

from perfmodel.cluster.cluster import Cluster
from perfmodel.core.hardware import Hardware, cached_per_machine
from perfmodel.core.machine_parts import Link
from perfmodel.errors import UsageError
from perfmodel.operators.memcpy import Memcpy
from perfmodel.prediction.predict import predict
from perfmodel.prediction.uncertainty import Z80

#: rate of a link to the host [B/s] -> memory bandwidth of a host with two sockets of its time [B/s], the products of
#: channels and transfers: DGX-2 (PCIe 3; two Xeon Platinum 8168, 12 channels of DDR4-2666), DGX A100 (PCIe 4; two EPYC
#: 7742, 16 of DDR4-3200), DGX H100 (PCIe 5; two Xeon Platinum 8480C, 16 of DDR5-4800). Other hosts differ
HOSTS = ((16e9, 256e9), (32e9, 410e9), (64e9, 614e9))
#: memory bandwidth of a Grace CPU for its NVLink-C2C [B/s each]: "500 GB/s" of LPDDR5X (SuperOffload, arXiv 2509.21271)
GRACE = (500e9, 450e9)
#: share of a host's memory bandwidth that the optimizer of its CPUs reaches, and the standard deviation of its ln. From
#: four published figures, at 28 B a parameter: PyTorch's fused Adam, 134 x 10^6 parameters in 31.8 ms, 118 GB/s on a
#: server that is not named (zhuhaozhe/Misc, bench-fused-optimizer); an optimizer of PrimeIntellect's, 171 x 10^9 in
#: 12.8 s, 374 GB/s of an 8 x H200 host (prime-rl pull request 3248); DeepSpeed's CPUAdam, 0.3 x 10^9 in 0.22 s beside
#: PCIe 4, 38 GB/s (issue 6695), and a whole step() of DeepSpeed with parameters on the host, whose passes make it 42 B,
#: 72 x 10^9 on four 8 x A100 in about 10 s, 76 GB/s a host (issue 6834). Over the bandwidths above, 410 GB/s for the
#: first: 0.29, 0.61, 0.09, 0.18
REACHED, REACHED_DEVIATION = 0.23, 0.8
#: the same deviation where the user states what the memory reaches: an optimizer reaches less where cores are few
STATED_DEVIATION = 0.3
_PROBE = 2.0**30


class HostRates(NamedTuple):
    """Rates of one GPU and its host while all GPUs of the host do the same.

    Attributes
    ----------
    to_host, from_host : of copies with pinned memory [B/s].
    from_pageable : of copies from memory of the host that is not pinned [B/s].
    update : at which the CPUs of the host read and write memory for this GPU's parameters [B/s].
    copy_deviation, update_deviation : standard deviations of ln(measured / predicted).
    """

    to_host: float
    from_host: float
    from_pageable: float
    update: float
    copy_deviation: float
    update_deviation: float


def host_rates(cluster: Cluster) -> HostRates:
    """Return the rates of a GPU of a cluster and its host.

    Copies reach what `Memcpy` predicts of the link, and no more than the GPU's share of the host's memory. GPUs share a
    host's memory and CPUs equally; a superchip's GPU has its own, or its part of them by its part of the CPU's link.

    Raises
    ------
    UsageError
        For a machine without a link to a host.
    """
    to_host, from_host, pageable, deviation = _copies(cluster.hardware)
    stated = cluster.host_bytes_per_s
    if not math.isnan(stated):
        share = stated / cluster.sharing_host
        to_host, from_host, pageable = (min(rate, share) for rate in (to_host, from_host, pageable))
        return HostRates(to_host, from_host, pageable, share, deviation, STATED_DEVIATION)
    memory = _memory_per_gpu(_host_link(cluster.hardware), cluster.sharing_host)
    to_host, from_host, pageable = (min(rate, memory) for rate in (to_host, from_host, pageable))
    return HostRates(to_host, from_host, pageable, REACHED * memory, deviation, REACHED_DEVIATION)


def _memory_per_gpu(link: Link, sharing: int) -> float:
    """Return the assumed bandwidth of the host's memory for each of the GPUs that share it [B/s]."""
    if link.technology:
        return GRACE[0] * link.bandwidth_bytes_per_s / GRACE[1]
    return next((memory for rate, memory in HOSTS if link.bandwidth_bytes_per_s <= rate), HOSTS[-1][1]) / sharing


def _host_link(hardware: Hardware) -> Link:
    link = next((link for link in hardware.links if link.name == "pcie"), None)
    if link is None or hardware.main_memory.shared_with_host:
        shares = hardware.main_memory.shared_with_host
        why = "shares its memory with its CPU" if shares else "has no link to a host in its specification"
        raise UsageError(
            f"{hardware.name} {why}: nothing can live on the host.", place="offload", remedy="Leave offload out."
        )
    return link


@cached_per_machine
def _copies(hardware: Hardware) -> tuple[float, float, float, float]:
    """Return the rates of large copies to and from the host, and from memory that is not pinned there [B/s].

    The last figure is the deviation of ln of the times of the first.
    """
    _host_link(hardware)
    ways = (("d2h", True), ("h2d", True), ("h2d", False))
    copies = [predict(Memcpy(bytes=_PROBE, direction=way, pinned=pinned), hardware) for way, pinned in ways]
    to_host, from_host, pageable = (_PROBE / float(copy.predicted_time_s) for copy in copies)
    deviation = math.log(float(copies[0].predicted_time_high_s) * to_host / _PROBE) / Z80
    return to_host, from_host, pageable, deviation
