"""The network over which keys and values move from engines that compute prompts to engines that decode."""

from __future__ import annotations

import math
from dataclasses import dataclass

from perfmodel.core.hardware import Fabric
from perfmodel.core.machine_parts import reached_rate
from perfmodel.core.units import format_count, format_si, network_text
from perfmodel.errors import UsageError
from perfmodel.prediction.topology import nic_rate
from perfmodel.serving.deployment import Deployment

#: bandwidth of a replica whose machine states no network: one card of 400 Gb/s, assumed [B/s]
ASSUMED_BYTES_PER_S = 50e9


@dataclass(frozen=True)
class KvLink:
    """What one replica sends or receives.

    Attributes
    ----------
    bytes_per_s : bandwidth of all its GPUs' networks for keys and values, of which it keeps each once [B/s].
    latency_s : time of the first byte [s].
    basis : where the bandwidth comes from, in words.
    """

    bytes_per_s: float
    latency_s: float
    basis: str


def kv_link(deployment: Deployment, given_bytes_per_s: float | None = None) -> KvLink:
    """Return the network of one replica.

    Each of the tp x pp GPUs of a copy of the model sends what it keeps of a sequence over its own network to the GPU
    with the same part of the other replica, which lies on other hosts (assumed):

        bandwidth = tp pp (rate of a GPU's network) (share that large messages reach) / oversubscription.

    GPUs that each keep the whole latent vector of a token (all of tp) send it beside each other, which is as long as
    one of them takes.

    Parameters
    ----------
    deployment : one replica.
    given_bytes_per_s : its bandwidth as the user knows it; None: that of the machine's specification.

    Raises
    ------
    UsageError
        For a bandwidth that is not above 0.
    """
    fabric = deployment.machine.fabric or Fabric()
    if given_bytes_per_s is not None:
        if not (math.isfinite(given_bytes_per_s) and given_bytes_per_s > 0):
            raise UsageError("the link for keys and values has no bandwidth.", remedy="Give a bandwidth above 0.")
        return KvLink(given_bytes_per_s, fabric.alpha_s, "as given")
    rate = nic_rate(deployment.machine)
    if not rate:
        basis = f"one network card of 400 Gb/s, assumed: {deployment.hardware.name} states no network; --nic gives it"
        return KvLink(ASSUMED_BYTES_PER_S, fabric.alpha_s, basis)
    cards = deployment.pp * (1 if deployment.part.keeps_alike else deployment.tp)
    reached = reached_rate(rate, fabric.nic_efficiency, fabric.oversubscription)
    basis = (
        f"{format_count(cards, 'GPU')} with a network of {network_text(rate)} each, of which large messages reach "
        f"{format_si(reached, 'B/s')}; replicas on other hosts, assumed"
    )
    return KvLink(cards * reached, fabric.alpha_s, basis)
