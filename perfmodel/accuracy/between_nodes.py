"""From measured exchanges between nodes to the network of a machine: share of its rate, and time of a step.

The two figures of ``[cluster]`` are those that minimise

    sum (ln(measured / predicted) / 0.1)^2 + (ln(alpha / alpha_0) / 0.7)^2 + (ln(share / share_0) / 0.3)^2

over the rows: small messages tell the step, large ones the share, and what the rows do not tell stays at what the
machine had. All else of the prediction, as what a node takes, is as it was.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from perfmodel.accuracy.fit import Floats
from perfmodel.accuracy.measured import MeasuredCalls
from perfmodel.core.hardware import Fabric, Hardware
from perfmodel.operators.collective import Collective
from perfmodel.prediction.predict import predict_piece
from perfmodel.prediction.topology import network_of, spread_of

#: a fit needs this many rows, of at least so many sizes of messages
FEWEST_ROWS, FEWEST_SIZES = 10, 3
#: error of a row, and how far machines' networks are from the usual alpha and share, of their logarithms: from the
#: hardware's latency to that of a network in the cloud alpha is four times as long; the share is assumed
_OF_ROW, _OF_ALPHA, _OF_SHARE = 0.1, 0.7, 0.3
#: what physics allows: time of a step [s]
_SHORTEST_S, _LONGEST_S = 5e-7, 1e-2
#: factors by which the search moves, one after the other
_STEPS = (2.0, 1.4, 1.15, 1.05, 1.02)
#: the least deviation that is stated: two runs differ by it
_LEAST_DEVIATION = 0.05


@dataclass(frozen=True)
class NetworkFit:
    """The network between the nodes of a machine, fitted to exchanges over it.

    Attributes
    ----------
    before, fabric : the network as the machine had it, and with the fitted figures.
    source : where the rows are from.
    rows : how many exchanges it was fitted to.
    off_before, off : mean of abs(predicted / measured - 1) of these rows, before and after.
    """

    before: Fabric
    fabric: Fabric
    source: str
    rows: int
    off_before: float
    off: float

    def on(self, hardware: Hardware) -> Hardware:
        """Return the machine with the fitted network."""
        sources = MappingProxyType({**hardware.sources, "cluster": self.fabric.source})
        return replace(hardware, fabric=self.fabric, sources=sources)


def crossing_rows(call: MeasuredCalls, hardware: Hardware) -> NDArray[np.bool_]:
    """Return which rows are exchanges between nodes of a machine."""
    if not isinstance(call.op, Collective):
        return np.zeros(len(call), dtype=bool)
    return np.broadcast_to(np.asarray(spread_of(call.op, hardware).crosses, dtype=bool), call.time_s.shape)


def fit_network(calls: Sequence[MeasuredCalls], hardware: Hardware, source: str) -> NetworkFit | None:
    """Return the network that fits the exchanges between nodes best; None where they are too few to tell.

    How far later messages may be off is told by sizes that are left out: the fit to every second size predicts the
    others.

    Parameters
    ----------
    calls : measured calls, of which those in a node are left aside.
    hardware : the machine, which has the rate of the network, or the operators state it.
    source : where the rows are from.

    Raises
    ------
    UsageError
        When neither the machine nor the operators have the rate of the network.
    """
    kept = [call.take(mask) for call in calls if (mask := crossing_rows(call, hardware)).any()]
    sizes = np.unique(np.concatenate([_sizes(call) for call in kept])) if kept else np.empty(0)
    if sum(map(len, kept)) < FEWEST_ROWS or sizes.size < FEWEST_SIZES:
        return None
    first: Any = kept[0].op
    before = network_of(first, hardware)
    machine = replace(hardware, fabric=before)
    fitted = _best(kept, machine)
    left_out = []
    for half in (sizes[::2], sizes[1::2]):
        rest, out = (list(_of_sizes(kept, half, inside)) for inside in (False, True))
        left_out.append(_log_ratios(out, replace(machine, fabric=_best(rest, machine))))
    deviation = math.sqrt(float(np.mean(np.concatenate(left_out) ** 2)))
    rows = sum(map(len, kept))
    origin = "; ".join(filter(None, (f"efficiency and alpha fitted on {source}, {rows} rows", before.source)))
    fabric = replace(fitted, deviation=round(max(deviation, _LEAST_DEVIATION), 3), source=origin)
    off_before, off = (
        float(np.mean(np.abs(np.expm1(-_log_ratios(kept, replace(machine, fabric=one)))))) for one in (before, fabric)
    )
    return NetworkFit(before, fabric, source, rows, off_before, off)


def _sizes(call: MeasuredCalls) -> Floats:
    op: Any = call.op
    return np.broadcast_to(np.asarray(op.bytes, dtype=np.float64), call.time_s.shape)


def _of_sizes(calls: Sequence[MeasuredCalls], sizes: Floats, inside: bool) -> Iterator[MeasuredCalls]:
    """Yield the rows whose message has one of some sizes, or has none of them."""
    for call in calls:
        mask = np.isin(_sizes(call), sizes) == inside
        if mask.any():
            yield call.take(mask)


def _best(calls: Sequence[MeasuredCalls], machine: Hardware) -> Fabric:
    """Return the network with the least sum of squares: a search that moves by ever smaller factors."""
    start = machine.fabric or Fabric()
    best, least = start, _loss(calls, machine, start, start)
    for factor in _STEPS:
        while True:
            losses = [(_loss(calls, machine, one, start), one) for one in _around(best, factor)]
            loss, near = min(losses, key=lambda pair: pair[0])
            if loss >= least:
                break
            best, least = near, loss
    return best


def _around(fabric: Fabric, factor: float) -> Iterator[Fabric]:
    """Yield the networks whose alpha and share are by a factor more or less, as far as physics allows."""
    for up, across in ((1, 0), (-1, 0), (0, 1), (0, -1), (1, 1), (-1, -1), (1, -1), (-1, 1)):
        alpha = min(max(fabric.alpha_s * factor**up, _SHORTEST_S), _LONGEST_S)
        efficiency = min(fabric.nic_efficiency * factor ** (across / 2.0), 1.0)
        yield replace(fabric, alpha_s=float(f"{alpha:.4g}"), nic_efficiency=float(f"{efficiency:.4g}"))


def _loss(calls: Sequence[MeasuredCalls], machine: Hardware, fabric: Fabric, start: Fabric) -> float:
    ratios = _log_ratios(calls, replace(machine, fabric=fabric))
    priors = ((fabric.alpha_s / start.alpha_s, _OF_ALPHA), (fabric.nic_efficiency / start.nic_efficiency, _OF_SHARE))
    return float(np.sum((ratios / _OF_ROW) ** 2)) + sum((math.log(moved) / spread) ** 2 for moved, spread in priors)


def _log_ratios(calls: Sequence[MeasuredCalls], machine: Hardware) -> Floats:
    """Return ln(measured / predicted) of some rows on a machine."""
    found = [np.empty(0)]
    for call in calls:
        predicted_s = predict_piece(call.op, machine, call.conditions).estimate.time_s
        found.append(np.log(call.time_s / predicted_s))
    return np.concatenate(found)
