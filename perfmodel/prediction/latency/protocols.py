"""The protocols by which a library exchanges data in a node: straight lines in time, of which the smallest counts.

See `perfmodel.prediction.latency.collectives`, whose constants ``c`` these are.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np

from perfmodel.core.machine_parts import Link
from perfmodel.core.record import record
from perfmodel.core.vocabulary import ErrorSource, Limiter
from perfmodel.core.work import Number, anywhere, ceil, maximum, minimum, where
from perfmodel.operators.collective import Collective
from perfmodel.prediction.conditions import Conditions
from perfmodel.prediction.latency.doubts import Doubt
from perfmodel.prediction.latency.family import Values
from perfmodel.prediction.latency.machine import Machine
from perfmodel.prediction.latency.terms import HBM, LAUNCH, SYNCHRONISATION, Term, Terms, link_term
from perfmodel.prediction.topology import NETWORK_LINK, PEER_LINKS, peer_links

SHARING = Term("sharing", Limiter.LINK, "GPUs that share the host's PCIe bridges")

#: links that go through the host
HOST_LINKS = ("pcie", NETWORK_LINK)
#: the clock at which starts and steps are stated, that of H100 and H200 [Hz]: they are a number of clocks, and those of
#: A100 take 1.4 times as long
CLOCK_HZ = 1.98e9
#: start and step of NCCL's protocol with flags between two H100, for which starts of other kernels are stated [s]
FLAGS_S = 6.6e-6
#: bytes with flags for each byte of the message: a flag of 4 B for each 4 B (LL), and of 8 B for each 120 B (LL128)
#: (Hu et al. 2025, arXiv 2507.04786, table I)
FLAGGED, SELDOM_FLAGGED, UNFLAGGED = 2.0, 128.0 / 120.0, 1.0
#: GPUs that exchange through the host without sharing its bridges with others
PAIR = 2.0
#: the message size at which half of the rise has occurred: 16 channels of 1 KiB [B]
CHANNELS_BYTES = 16384.0
#: start of the protocol with one flag in 128 bytes (LL128) over the one with a flag in eight, read off all-gathers and
#: all-to-alls of 0.5 to 8 MiB. Rows of reduce-scatters show no such part
MID_START = 1.4
#: the same of an all-reduce, over start and steps of the tree with a flag in eight bytes: all-reduces of 2 to 16 MiB on
#: 8 H100 lie on a straight line that meets zero bytes at 26 us, where a message of 512 B takes 15.5 us
TREE_MID = 1.7
#: a GPU's own part is copied by the few SMs that the collective has: 4 B a clock for each SM of the whole chip (from
#: two GPUs against eight, 0.96 TB/s on H100 and H200, 0.48 TB/s on A100), where a family has no constant for it
OWN_BYTES_PER_CLOCK = 4.0
#: a reduction in the switch starts later, by this factor over the ring: straight lines through the largest messages of
#: 8 H100 meet zero bytes at 68 us in the switch and 36 us in the ring, steps included
SWITCH_START = 2.0
#: the fastest NVLink whose switch reduced messages that constants were fitted to, that of Hopper [B/s]
MEASURED_SWITCH = 450e9
#: all-reduces over a faster one among eight GPUs and more, beside those among four, of which there are rows: reductions
#: in the switch start later [s] and reach less of the link, and so does the ring. Those of 134 MB to 4.3 GB among eight
#: B200 lie on a line that meets zero bytes at 82 us and moves 745 GB/s on the bus, where 50 us and 900 GB/s had been
#: taken, those of 8 to 34 MB on one of 480 GB/s (nccl-tests on Google's A4, in view; two other sources reach 833 to 845
#: with 4 GB and more, and one of them the same with 67 MB)
OF_FOUR, OF_EIGHT = 4.0, 8.0
LATER_AMONG_EIGHT_S, SHARE_AMONG_EIGHT, RING_AMONG_EIGHT = 32e-6, 0.87, 0.65
#: what one more flag costs a kernel that waits for those of all others, on H100: from 2 to 8 GPUs, small messages take
#: 0.3 to 0.9 us longer with SGLang and TensorRT-LLM, and 0.5 to 0.7 us on A100 [s]
FLAG_S = 0.1e-6
#: the largest message of the all-reduce kernels of SGLang and vLLM (``max_size`` of their custom_all_reduce.py) [B]
CUSTOM_BYTES = 8.0 * 2.0**20
#: the same of TensorRT-LLM between two GPUs, and more (getMaxRequiredWorkspaceSize, customAllReduceUtils.h) [B]
TRTLLM_BYTES = (16e6, 8e6)
#: the numbers of GPUs that these kernels are compiled for: ``_SUPPORTED_WORLD_SIZES`` of custom_all_reduce.py, and
#: dispatchARKernels in customAllReduceKernels.cu of github.com/NVIDIA/TensorRT-LLM. Others call NCCL
CUSTOM_GPUS, TRTLLM_GPUS = (2, 4, 6, 8), (2, 4, 6, 8, 16)
SGLANG, VLLM = "sglang", "vllm"
#: links of a full mesh of xGMI that RCCL's rings use of GPUs whose number is no power of two, since it closes none over
#: all links: five collectives of 8 GiB among 3, and among 5, 6 and 7 of eight MI355X move 69 and 38 GB/s on the bus,
#: where a pair has 57 to 61 (github.com/mit-orcd/amd-benchmarks @ 859a5659bc3d, in view; other machines are taken for
#: alike)
UNRINGED_LINKS = {3.0: 1.2, 5.0: 0.67, 6.0: 0.67, 7.0: 0.67}
_MESHED_LINK = "xgmi"
#: what RCCL's kernels start later than NCCL's, whose constants stand for them [s]: all-reduces of up to 64 KiB among
#: eight MI300X, MI350X and MI355X take 7.5 us at AMD, 13 to 14 in two other rccl-tests and 27 to 37 at three who call
#: RCCL from PyTorch, where 7 would be expected without (six sources of `examples/published`, in view). Those in C
#: take 0 and 6 us more than expected, of which the larger stands for all. Four sends of MI300A start no later; MSCCL++
#: and the kernels of other libraries have starts of their own
LATER_IN_RCCL_S = 6e-6
#: libraries whose exchanges on AMD's machines are RCCL's, where they have no kernel of their own
CALLING_RCCL = ("", "rccl", "nccl", "torch", "trtllm", SGLANG, VLLM)
#: what NCCL's all-reduce does: flags go up and down a tree, a ring synchronises first, and a switch reduces
TREE, RING, IN_SWITCH = "tree", "ring", "in_switch"
#: releases of SGLang from which on its kernel's synchronisation takes so many times the mean of all releases, on H100
#: and H200 alike: with these, the median of measured over predicted is 1 for the fitted rows of each release of up to
#: 1 MiB on H100, without them 0.75, 1.18, 1.17 and 0.87 (aiconfigurator @ 095f58a51c4c)
SGLANG_RELEASES = {(0, 5, 14): 0.72, (0, 5, 10): 1.18, (0, 5, 9): 1.18, (0, 5, 6): 0.87}
#: the largest message to which they matter, and the standard deviation of the logarithm over the four releases: 1 MiB
RELEASE_BYTES, RELEASES = 2.0**20, (0.21, 0.21, 0.21)


class Protocol(NamedTuple):
    """One protocol: the parts of its time [s], and whether a GPU copies its own part beside them.

    What passes the network passes the link inside a node at the same time, so that the longer of the two counts. Of its
    bytes, ``wire`` for each of the message cross the network, flags included.
    """

    start: Number
    steps: Number
    link: Number
    copies: Any = True
    network: Number = 0.0
    wire: float = UNFLAGGED

    def transfer(self, crowd: Number = 1.0) -> Number:
        """Return the time of the bytes, where ``crowd`` stretches the time on the link [s]."""
        link = self.link * crowd
        return maximum(link, self.network) if anywhere(self.network) else link


@record
class Path:
    """What the bytes of a collective cross, a value for each point.

    Attributes
    ----------
    links : the links and the points that cross each.
    bandwidth : of one GPU towards the others [B/s].
    scale : of starts and steps over those of `CLOCK_HZ`.
    in_switch : whether a switch may reduce.
    meshed : whether each pair of GPUs has links of xGMI of its own, over which RCCL sends to all others at once.
    young : whether the switch is faster than those of the tables.
    ringed : share of the bandwidth that rings over all GPUs use.
    """

    links: list[tuple[str, Any]]
    bandwidth: Number
    scale: float
    in_switch: Any
    meshed: Any
    young: Any = False
    ringed: Number = 1.0


def path_of(op: Collective, machine: Machine) -> Path:
    """Return what the bytes of a collective cross in a node of a machine."""
    parts = peer_links(machine.links.values(), op.num_gpus)
    bandwidth = math.nan if anywhere(op.num_gpus > 1) else math.inf
    in_switch, meshed, young = False, False, False
    for link, here in parts:
        bandwidth = where(here, link.rate_among(op.reached()), bandwidth)
        in_switch = where(here, link.reduces_in_switch, in_switch)
        meshed = where(here, is_mesh_of_xgmi((link,)), meshed)
        young = where(here, is_young_switch(link), young)
    names = [(link.name, here) for link, here in parts] or [(PEER_LINKS[0], True)]
    scale = CLOCK_HZ / machine.clock_hz
    return Path(names, bandwidth, scale, in_switch, meshed, young, ringed_share(op, machine.links.values()))


def is_mesh_of_xgmi(links: Iterable[Link]) -> bool:
    """Return whether AMD's links join each two GPUs."""
    return any(link.name == _MESHED_LINK and link.is_full_mesh for link in links)


def is_young_switch(link: Link) -> bool:
    """Return whether a link's switch reduces, and is faster than those whose reductions constants were fitted to."""
    return link.reduces_in_switch and link.bandwidth_bytes_per_s > MEASURED_SWITCH


def ringed_share(op: Collective, links: Iterable[Link]) -> Number:
    """Return the share of the links to all GPUs that rings use: 1, but of some numbers of GPUs in a mesh of xGMI."""
    share: Number = 1.0
    if op.op != "send_recv" and is_mesh_of_xgmi(links):
        for gpus, used in UNRINGED_LINKS.items():
            share = where(op.num_gpus == gpus, used / (gpus - 1.0), share)
    return share


def rise_of(op: Collective, c: Values) -> Number:
    """Return the factor by which start and steps of the protocol with flags grow with the message."""
    return 1.0 + c["ll_rise"] * op.bytes / (op.bytes + CHANNELS_BYTES)


def _later_in_rccl(op: Collective, path: Path, library: str) -> Number:
    """Return what RCCL, or whoever calls it, starts later than NCCL, but not for two GPUs that send and receive [s]."""
    if library not in CALLING_RCCL or op.op == "send_recv" or not anywhere(path.meshed):
        return 0.0
    later: Number = where(path.meshed, LATER_IN_RCCL_S, 0.0)
    return later


def nccl_protocols(op: Collective, path: Path, c: Values, library: str = "") -> dict[str, list[Protocol]]:
    """Return NCCL's protocols by what an all-reduce does in them: with flags in the data, a ring, and in the switch.

    The switch reduces where that moves fewer bytes. Other collectives with flags in the data are rings, too.

    The all-reduce with flags in the data goes up and down a tree: 2 S bytes, however many GPUs there are. Up to 1 MiB,
    2, 4 and 8 GPUs (A100, H100, B200) reach 0.6, 0.85 and 1 of one rate if 2 S (n - 1) / n are counted, which a ring
    sends. Where each pair has links of its own, RCCL sends flags and data to all others at once and waits once: its
    all-reduces of up to 256 KiB between eight MI300X take 7.5 to 10.3 us (`examples/published`), 18 to 24 in n - 1
    steps. NCCL does not: one of 64 KiB among the four GH200 of a board, a mesh of NVLink, takes 11.2 us (`boeschf-alps`
    there), 11.5 by n - 1 steps and 8.0 if all were sent at once.
    """
    further, ring = minimum(op.steps(), op.num_gpus - 1.0), op.peer_bytes()
    waited = where(path.meshed, 1.0, further) if anywhere(path.meshed) else further
    tree, rings = op.op == "all_reduce", path.ringed * path.bandwidth
    rise = path.scale * rise_of(op, c)
    later = _later_in_rccl(op, path, library)
    start, steps = path.scale * c["start"] + later, path.scale * c["step"] * further
    link = ring / (c["share"] * rings)
    flags, waits = rise * c["ll_start"], rise * c["ll_step"] * waited
    flagged = [
        Protocol(flags + later, waits, (2.0 * op.bytes if tree else ring) / (c["ll_share"] * rings), wire=FLAGGED)
    ]
    found = {TREE: flagged, RING: [Protocol(start, steps, link)]}
    if "mid_share" in c:
        between = TREE_MID * waits if tree else path.scale * math.sqrt(c["ll_step"] * c["step"]) * waited
        middle = ring / (c["mid_share"] * rings)
        begins = (TREE_MID if tree else MID_START) * flags + later
        flagged.append(Protocol(begins, between, middle, wire=SELDOM_FLAGGED))
    less = where(path.in_switch, op.peer_bytes(in_switch=True), ring) if anywhere(path.in_switch) else ring
    if anywhere(less < ring):
        many = _many_of_young(op, path)
        share = c.get("in_switch", 1.0) * (1.0 - (1.0 - SHARE_AMONG_EIGHT) * many)
        switched = where(less < ring, less / (share * path.bandwidth), link)
        found[IN_SWITCH] = [Protocol(SWITCH_START * start + LATER_AMONG_EIGHT_S * many, steps, switched)]
        found[RING] = [Protocol(start, steps, link / (1.0 - (1.0 - RING_AMONG_EIGHT) * many))]
    return found


def _many_of_young(op: Collective, path: Path) -> Number:
    """Return how far GPUs are from four to eight and more where a switch faster than those of the tables joins them."""
    if not anywhere(path.young):
        return 0.0
    beyond = minimum(maximum(op.num_gpus / OF_FOUR - 1.0, 0.0), OF_EIGHT / OF_FOUR - 1.0)
    many: Number = where(path.young, beyond, 0.0)
    return many


def custom_scale(path: Path, c: Values) -> float:
    """Return by how much the flags of a library's own kernels take longer than on H100."""
    return path.scale * (c["ll_start"] + c["ll_step"]) / FLAGS_S


def custom_start(op: Collective, path: Path, c: Values) -> Number:
    """Return the start of a library's own kernel: the flags of all other GPUs, of which each costs `FLAG_S`."""
    return custom_scale(path, c) * (c["custom_start"] + FLAG_S * (op.num_gpus - PAIR))


def release_factor(library: str, conditions: Conditions) -> float:
    """Return by how much the flags of a release of a library take longer than those of its mean release."""
    if not library.startswith(SGLANG) or not conditions.release:
        return 1.0
    since = (factor for release, factor in SGLANG_RELEASES.items() if not conditions.is_before(*release))
    return next(since, SGLANG_RELEASES[0, 5, 6])


def _of_some_release(op: Collective, machine: Machine, conditions: Conditions) -> Any:
    """Whether synchronisation counts in SGLang's kernel of a release that nobody measured, or in vLLM's, its origin."""
    measured = conditions.release in SGLANG_RELEASES
    unknown = conditions.library.startswith(VLLM) or (conditions.library.startswith(SGLANG) and not measured)
    return unknown and op.bytes <= RELEASE_BYTES


SOME_RELEASE = Doubt(ErrorSource.RELEASE, _of_some_release, RELEASES)


def custom_protocols(op: Collective, library: str, c: Values, path: Path, factor: float = 1.0) -> list[Protocol]:
    """Return a library's own all-reduce: each GPU reads all messages; or a part of each, and then all sums.

    Every GPU waits for the flags of all others at once. These flags take as much longer than on H100 as those of NCCL
    do, times the ``factor`` of the release. A GPU reads its own part along with those of the others. TensorRT-LLM's
    rows have no second kind: above the first they are NCCL's, and so are those of as many GPUs as no kernel is for.
    """
    trtllm = library.startswith("trtllm")
    scale, rate = custom_scale(path, c), c["custom_share"] * path.bandwidth
    most = where(op.num_gpus <= PAIR, *TRTLLM_BYTES) if trtllm else CUSTOM_BYTES
    has = (op.bytes <= most) & np.isin(op.num_gpus, TRTLLM_GPUS if trtllm else CUSTOM_GPUS)
    start = where(has, factor * custom_start(op, path, c), math.inf)
    lines = [Protocol(start, 0.0, (op.num_gpus - 1.0) * op.bytes / rate, copies=False)]
    if not trtllm:
        lines.append(Protocol(start, factor * scale * c["custom_step"], op.peer_bytes() / rate, copies=False))
    return lines


def crowd_of(op: Collective, machine: Machine, c: Values) -> Number:
    """Return by how much GPUs that share the host's bridges take longer: ``crowding`` for each doubling beyond two.

    A ring through cards that a bridge of NVLink joins crosses the host once a group. Four A100 PCIe in pairs gathered
    32 MiB at 26 GB/s, eight H200 NVL in fours reduced 32 GiB at 69 (`examples/published`, aks-a100-pcie, k8s-h200-nvl,
    in view): in 0.38 and 0.15 times what it would take if all shared the host.
    """
    sharing = op.num_gpus
    bridge = max((link.domain or 1 for name, link in machine.links.items() if name not in HOST_LINKS), default=1)
    if bridge > 1 and op.op != "alltoall":
        sharing = where(op.num_gpus > bridge, ceil(op.num_gpus / bridge), sharing)
    return maximum(1.0, (sharing / PAIR) ** float(np.log2(c["crowding"])))


def fastest(
    op: Collective,
    machine: Machine,
    path: Path,
    lines: list[Protocol],
    c: Values,
    crowd: Number = 1.0,
) -> Terms:
    """Return the terms of the fastest protocol at each point; ``crowd`` stretches the time on the link.

    The copy of the own part is no slower than the link, since more GPUs, each with a smaller part of its own, would be
    faster otherwise.
    """
    best = functools.reduce(functools.partial(_sooner, crowd=crowd), lines)
    copied = c.get("own", OWN_BYTES_PER_CLOCK) * machine.sm_count * machine.clock_hz
    own = best.copies * op.own_bytes() / maximum(copied, c["share"] * path.bandwidth)
    transfer, alone = best.link, _over(path, best.link * crowd)
    adds = _over(path, transfer)
    if anywhere(best.network):
        network = link_term(NETWORK_LINK)
        slower: Any = best.network > best.link * crowd  # then the link's time passes beside that of the network
        transfer = where(slower, 0.0, best.link)
        adds = _over(path, transfer)
        adds[network] = adds.get(network, 0.0) + where(slower, best.network, 0.0)
        alone[network] = alone.get(network, 0.0) + best.network
    return Terms(
        {**adds, SHARING: transfer * (crowd - 1.0), HBM: own, LAUNCH: best.start, SYNCHRONISATION: best.steps}, alone
    )


def _over(path: Path, time_s: Number) -> dict[Term, Number]:
    """Return a time at the term of the link that the bytes of each point cross in a node."""
    return {link_term(name): time_s if here is True else where(here, time_s, 0.0) for name, here in path.links}


def _sooner(one: Protocol, other: Protocol, crowd: Number) -> Protocol:
    """Return the protocol that ends sooner at each point, the first of two that end together."""
    later = other.start + other.steps + other.transfer(crowd) < one.start + one.steps + one.transfer(crowd)
    if later is True or later is False:
        return other if later else one
    start, steps, link, copies, network = (
        where(later, b, a) if a is not b else a for a, b in zip(one[:5], other[:5], strict=True)
    )
    return Protocol(start, steps, link, copies, network)
