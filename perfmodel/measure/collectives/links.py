"""The link between the ranks as two figures: what a step of an exchange costs, and what a byte costs."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from perfmodel.accuracy.between_nodes import FEWEST_ROWS, FEWEST_SIZES, crossing_rows, fit_network
from perfmodel.accuracy.judge import faster_than_bound
from perfmodel.accuracy.measured import MeasuredCalls
from perfmodel.core.hardware import ExchangeLine, Hardware, Link
from perfmodel.core.report import Reportable
from perfmodel.errors import InputFileError
from perfmodel.measure.calibration.rates import rounded
from perfmodel.measure.collectives.ranks import time_exchange
from perfmodel.measure.timing.stopping_rule import StandardErrorRule
from perfmodel.operators import load_operator
from perfmodel.operators.all_reduce import AllReduce
from perfmodel.operators.collective import Collective
from perfmodel.operators.send_recv import SendRecv
from perfmodel.prediction.ceilings import link_traffic
from perfmodel.prediction.topology import NETWORK_LINK, PROCESS_LINK, peer_links
from perfmodel.prediction.uncertainty import Z80
from perfmodel.records.calls import measured_calls
from perfmodel.records.schema import Record

if TYPE_CHECKING:
    from perfmodel.kernels.device import Device
    from perfmodel.kernels.distributed.group import Group

#: messages from which the link of a machine without one is estimated: a latency, and a bandwidth [B]
PROBES_BYTES = (4096.0, 2.0**20, 2.0**24)
#: the exchanges that carry them: on a busy machine a step of one may take ten times that of the other
PROBES: tuple[type[Collective], ...] = (AllReduce, SendRecv)
#: FLOP of a multiply-add in a lane of a vector, bytes of the lane, and ranks of the smallest exchange
_FLOP_PER_LANE, _FP32_BYTES, _FEWEST_RANKS = 2.0, 4.0, 2.0
#: figures of a line
_FIGURES = 2
#: share of the next messages that an interval holds
_HELD = 0.8
#: the least deviation that is stated of a line: `bench` stops at a standard error of 1 %, as the next run does
_LEAST_DEVIATION = 0.02
#: error of the fit from which on a line says little about its messages. Between two processes on gloo lines were 40 to
#: 64 % off with twice as many busy processes as cores
_ROUGH = 0.5
_PROBE_RULE = StandardErrorRule(0.02, time_limit_s=0.25, min_time_s=0.1)


@dataclass(frozen=True)
class AlphaBeta:
    """t = alpha steps + V / beta for the V bytes that a rank sends and the steps of the ring (Hockney 1994).

    Attributes
    ----------
    alpha_s : time of one step without its bytes [s].
    beta_bytes_per_s : bandwidth of a rank [B/s].
    fastest_bytes_per_s : largest V / t of any message, or beta: what no message has beaten [B/s].
    error : root mean square of the relative residuals.
    left_out : half of the 80 % interval of ln(measured / predicted) of messages of a size that was left out of the fit;
        None for fewer than three sizes, which two figures fit in any case.
    """

    alpha_s: float
    beta_bytes_per_s: float
    fastest_bytes_per_s: float
    error: float
    left_out: float | None = None

    def times_s(self, operators: Sequence[Collective]) -> NDArray[np.float64]:
        """Return the time of each of some collectives on the line [s]."""
        return np.asarray(_columns(operators) @ np.array([self.alpha_s, 1.0 / self.beta_bytes_per_s]))


@dataclass(frozen=True)
class LinkCalibration(Reportable):
    """The link of a machine, fitted to collectives.

    Attributes
    ----------
    machine : the machine with the link.
    link : its name.
    together : over all collectives: the figures of the link.
    parts : collective -> its own fit, where it was measured at several sizes; the specification keeps those with an
        error of sizes that were left out.
    backend, num_gpus : what ran.
    source : where and when.
    """

    machine: Hardware
    link: str
    together: AlphaBeta
    parts: dict[str, AlphaBeta]
    backend: str
    num_gpus: int
    source: str

    @property
    def rough(self) -> tuple[str, ...]:
        """The collectives whose messages are far off their line, as where other processes used the machine."""
        return tuple(name for name, fit in self.parts.items() if fit.error > _ROUGH)


def fit_alpha_beta(operators: Sequence[Collective], times_s: Sequence[float]) -> AlphaBeta:
    """Return alpha and beta that minimise sum ((alpha steps + V / beta - t) / t)^2, both at least 0.

    The problem is linear in alpha and 1 / beta. Where the best line has a negative term, the other alone is fitted.

    >>> from perfmodel.operators.send_recv import SendRecv
    >>> ops = [SendRecv(bytes=size, num_gpus=2) for size in (1000, 1_000_000)]
    >>> fit = fit_alpha_beta(ops, [10e-6 + 1000 / 1e9, 10e-6 + 1e6 / 1e9])
    >>> round(fit.alpha_s * 1e6, 3), round(fit.beta_bytes_per_s / 1e9, 3)
    (10.0, 1.0)
    """
    columns = _columns(operators) / np.asarray(times_s, dtype=np.float64)[:, None]
    best = _least_squares(columns)
    residuals = columns @ best - 1.0
    fastest = float(columns[:, 1].max())
    beta = float(1.0 / best[1]) if best[1] > 0 else fastest
    return AlphaBeta(float(best[0]), beta, max(beta, fastest), float(np.sqrt(np.mean(residuals**2))))


def fit_part(operators: Sequence[Collective], times_s: Sequence[float]) -> AlphaBeta:
    """Return the line of one collective with its error on sizes that were left out, one after the other.

    Of n errors the interval holds the ceil(0.8 (n + 1)) smallest, so that the next message is in it with a probability
    of 80 % or more whatever their distribution, as the jackknife of conformal prediction has it (Barber et al.,
    "Predictive inference with the jackknife+", Annals of Statistics 49, 2021); of few errors it holds all.
    """
    sizes = np.array([float(op.bytes) for op in operators])
    fit = fit_alpha_beta(operators, times_s)
    if np.unique(sizes).size <= _FIGURES:
        return fit
    times, errors = np.asarray(times_s, dtype=np.float64), np.empty(sizes.size)
    for size in np.unique(sizes):
        rest, out = (np.flatnonzero(chosen).tolist() for chosen in (sizes != size, sizes == size))
        line = fit_alpha_beta([operators[place] for place in rest], times[rest].tolist())
        errors[out] = np.log(times[out] / line.times_s([operators[place] for place in out]))
    held = min(sizes.size, math.ceil(_HELD * (sizes.size + 1)))
    return dataclasses.replace(fit, left_out=float(np.sort(np.abs(errors))[held - 1]))


def _columns(operators: Sequence[Collective]) -> NDArray[np.float64]:
    """Return steps and sent bytes of some collectives, a row for each."""
    return np.array([[float(op.steps()), float(op.peer_bytes())] for op in operators])


def _least_squares(columns: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return x >= 0 with the least |columns x - 1|^2 of two unknowns."""
    scale = np.maximum(np.abs(columns).max(axis=0), 1e-300)
    ones = np.ones(len(columns))
    best = np.linalg.lstsq(columns / scale, ones, rcond=None)[0]
    if (best >= 0).all():
        return np.asarray(best / scale)
    singles = []
    for index in range(2):
        alone = np.zeros(2)
        column = columns[:, index] / scale[index]
        alone[index] = max(0.0, float(column @ ones) / max(float(column @ column), 1e-300))
        singles.append(alone)
    return np.asarray(min(singles, key=lambda x: float(np.sum((columns / scale @ x - ones) ** 2))) / scale)


def probe(group: Group, device: Device) -> AlphaBeta:
    """Return the link between the ranks from a few all-reduces and messages to the neighbour.

    Of the lines of the two it is the one with the shorter step: other work on the machine only makes a step longer.
    """
    lines = group.run(lambda: [_probed(kind, group, device) for kind in PROBES])
    return shorter_step(lines)


def _probed(kind: type[Collective], group: Group, device: Device) -> AlphaBeta:
    """Return the line of one exchange."""
    from perfmodel.kernels.distributed.exchanges import exchange

    operators = [kind(bytes=size, num_gpus=group.size, dtype="fp32") for size in PROBES_BYTES]
    timed = [time_exchange(exchange(op, group).call, group, device, _PROBE_RULE) for op in operators]
    return fit_alpha_beta(operators, [one.median_s for one in timed])


def shorter_step(lines: Sequence[AlphaBeta]) -> AlphaBeta:
    """Return the line whose step is the shortest, with the largest bandwidth that a message of any line reached.

    A line without a step is one on which the bandwidth explains all messages; it counts where all are such lines.
    """
    best = min(lines, key=lambda line: (line.alpha_s == 0, line.alpha_s))
    return dataclasses.replace(best, fastest_bytes_per_s=max(line.fastest_bytes_per_s for line in lines))


def _calibrate_network(record: Record, machine: Hardware) -> LinkCalibration | None:
    """Return the network between the nodes of a record's ranks; None where they are in one node.

    Raises
    ------
    InputFileError
        When the rows are too few to tell, or faster than the network of the machine allows.
    """
    calls = measured_calls(record).calls
    crossing = [call for call in calls if crossing_rows(call, machine).any()]
    if not crossing:
        return None
    if any(faster_than_bound(call, machine).any() for call in crossing):
        raise InputFileError(
            f"has exchanges that are faster than the network of {machine.name} allows.",
            place=record.place,
            remedy="State the network of one GPU in the operators, as in nic=800Gb/s.",
        )
    ranks = record.facts.get("ranks", {})
    nodes = len(ranks.get("ranks_by_host", ())) or "several"
    source = f"{_source_of(record)} on {nodes} hosts"
    fit = fit_network(crossing, machine, source)
    if fit is None:
        raise InputFileError(
            f"has fewer than {FEWEST_ROWS} exchanges between nodes, or of fewer than {FEWEST_SIZES} sizes.",
            place=record.place,
            remedy="Measure more sizes.",
        )
    fabric, fastest = fit.fabric, max(_network_rate(call, machine) for call in crossing)
    together = AlphaBeta(
        fabric.alpha_s, fabric.reached_bytes_per_s, max(fastest, fabric.reached_bytes_per_s), fit.off,
        Z80 * (fabric.deviation or 0.0),
    )  # fmt: skip
    backend, size = str(ranks.get("backend")), ranks.get("size", 0)
    return LinkCalibration(fit.on(machine), NETWORK_LINK, together, {}, backend, size, source)


def _network_rate(call: MeasuredCalls, machine: Hardware) -> float:
    """Return the highest rate at which a GPU's network carried what had to leave its node [B/s]."""
    return float(np.max(link_traffic(call.op, machine)[NETWORK_LINK] / call.time_s))


def _source_of(record: Record) -> str:
    ranks = record.facts.get("ranks", {})
    return f"{ranks.get('backend')}, {ranks.get('size')} ranks, {str(record.facts.get('date', ''))[:10]}"


def calibrate_link(record: Record, machine: Hardware) -> LinkCalibration:
    """Return the link of a machine, fitted to the collectives of a record; between nodes it is the network.

    Parameters
    ----------
    record : of collectives of several sizes.
    machine : that the record was compared with.

    Raises
    ------
    InputFileError
        When the record has no two measured sizes of a collective.
    """
    network = _calibrate_network(record, machine)
    if network is not None:
        return network
    measured: dict[str, list[tuple[Collective, float]]] = {}
    for row in record.rows:
        if row.measured_time_s:
            op = load_operator(row.op)(dtype=row.dtype, **row.params)
            if isinstance(op, Collective):
                measured.setdefault(op.op, []).append((op, row.measured_time_s))
    if not any(len({float(op.bytes) for op, _ in pairs}) > 1 for pairs in measured.values()):
        raise InputFileError("has no collective of two sizes.", place=record.place, remedy="Measure several sizes.")
    parts = {name: fit_part(*zip(*pairs, strict=True)) for name, pairs in measured.items()}
    together = fit_alpha_beta(*zip(*(pair for pairs in measured.values() for pair in pairs), strict=True))
    ranks = record.facts.get("ranks", {})
    (first, *_), *_ = measured.values()
    name = next(str(link.name) for link, _ in peer_links(machine.links, first[0].num_gpus))
    source = _source_of(record)
    fresh = dataclasses.replace(machine, links=tuple(link for link in machine.links if link.name != PROCESS_LINK))
    calibrated = with_link(fresh if name == PROCESS_LINK else machine, name, together, source)
    calibrated = with_lines(calibrated, name, parts, int(first[0].num_gpus))
    return LinkCalibration(calibrated, name, together, parts, str(ranks.get("backend")), ranks.get("size", 0), source)


def with_link(machine: Hardware, name: str, fit: AlphaBeta, source: str) -> Hardware:
    """Return a machine with the measured link: its latency, beta as its sustained bandwidth, and the error of the fit.

    A link that the specification lacks gets the bandwidth that no exchange can beat (`_most_bytes_per_s`): the fastest
    message of one run is beaten by those of the next.
    """
    latency, note = rounded(fit.alpha_s), f"the line is {100 * fit.error:.0f} % off its messages (root mean square)"
    links = [
        dataclasses.replace(link, latency_s=latency, note=note) if link.name == name else link for link in machine.links
    ]
    if name not in {link.name for link in links}:
        most = rounded(max(fit.fastest_bytes_per_s, _most_bytes_per_s(machine)))
        note = f"{note}; per direction what the cores' vector stores allow"
        links.append(Link(name, most, source=source, note=note, latency_s=latency))
    rate = rounded(min(fit.beta_bytes_per_s, fit.fastest_bytes_per_s))
    sustained = MappingProxyType({**machine.sustained_links, name: rate})
    dated = machine.sustained_source or source
    return dataclasses.replace(machine, links=tuple(links), sustained_links=sustained, sustained_source=dated)


def with_lines(machine: Hardware, name: str, parts: Mapping[str, AlphaBeta], ranks: int) -> Hardware:
    """Return a machine with the lines of single collectives on a link, beside those that it has of others.

    A line without an error of sizes that were left out would predict without an interval, one without a time of a step
    the smallest messages in no time: such collectives keep the figures of the link.
    """
    lines = {
        op: ExchangeLine(
            rounded(fit.alpha_s),
            rounded(fit.beta_bytes_per_s),
            max(round(fit.left_out / Z80, 3), _LEAST_DEVIATION),
            ranks,
        )
        for op, fit in parts.items()
        if fit.left_out is not None and fit.alpha_s > 0
    }
    links = [
        dataclasses.replace(link, lines=MappingProxyType({**link.lines, **lines})) if link.name == name else link
        for link in machine.links
    ]
    return dataclasses.replace(machine, links=tuple(links))


def _most_bytes_per_s(machine: Hardware) -> float:
    """Return a bandwidth that no rank exceeds in an exchange among processes of a CPU [B/s].

    A core stores every byte that a rank receives at least once, whichever cache or memory it is in, and stores two
    vectors a clock at most, as many as it multiplies and adds (Intel 64 and IA-32 Architectures Optimization Reference
    Manual, 2.2: two 32 B or one 64 B). So B/s = FLOP/s / 2 x 4 B of the fp32 peak; two ranks at least share it.
    """
    return machine.vector_peak("fp32").flop_per_s / _FLOP_PER_LANE * _FP32_BYTES / _FEWEST_RANKS
