"""Reading a cluster from a file: which machine, how many, and the network between them."""

from __future__ import annotations

import dataclasses
import os
from typing import Any

import msgspec

from perfmodel.cluster.cluster import Cluster
from perfmodel.core.hardware import Fabric, Hardware
from perfmodel.core.units import parse_network_rate
from perfmodel.errors import InputFileError, PerfModelError
from perfmodel.files import read_document
from perfmodel.hardware_catalog.explain import explained, found_and_allowed
from perfmodel.hardware_catalog.find import hardware
from perfmodel.hardware_catalog.parts import Quantities
from perfmodel.hardware_catalog.schema import ClusterSpec


class _ClusterFile(ClusterSpec, kw_only=True):
    """The table ``[cluster]`` of a file of its own: that of a specification, and which machine, and how many."""

    hardware: str
    gpus: int
    gpus_per_node: int | None = None  # type: ignore[assignment]  # by default that of the machine
    nvlink_domain: int | None = None
    bridge: bool = True


def read_cluster(path: str | os.PathLike[str]) -> Cluster:
    """Return the cluster that a TOML, YAML or JSON file describes in its table ``[cluster]``.

    ``hardware`` and ``gpus`` are needed; ``nvlink_domain`` and the keys of ``[cluster]`` in a specification are by
    default those of the machine's.

    Raises
    ------
    InputFileError
        When the file cannot be read, a key is unknown or missing, or a value is impossible.
    """
    place = os.fspath(path)
    spec = _read_spec(read_document(path), place)
    read = Quantities(place)
    try:
        cluster = Cluster.of(
            _with_host(hardware(spec.hardware), spec, read),
            spec.gpus,
            gpus_per_node=spec.gpus_per_node,
            nic=spec.nic,
            nvlink_domain=spec.nvlink_domain,
            nic_efficiency=spec.nic_efficiency,
            alpha_s=read.optional(spec.alpha, "s", "cluster.alpha"),
            oversubscription=spec.oversubscription,
            bridge=spec.bridge,
        )
    except PerfModelError as error:
        raise InputFileError(error.message, place=f"{place}: cluster", remedy=error.remedy) from None
    return dataclasses.replace(cluster, source=spec.source or cluster.source)


def _read_spec(document: Any, place: str) -> _ClusterFile:
    table: Any = document.get("cluster") if isinstance(document, dict) else None
    if not isinstance(table, dict):
        raise InputFileError("has no table [cluster].", place=place, remedy="It needs hardware and gpus.")
    try:
        return msgspec.convert(table, _ClusterFile)
    except msgspec.ValidationError as error:
        wrong = explained(str(error), f"{place}: cluster", nested=True)
        key = wrong.place.removeprefix(f"{place}: ")
        remedy = found_and_allowed(document, key, wrong.message, _ClusterFile)
        raise InputFileError(wrong.message, place=wrong.place, remedy=remedy) from None


def _with_host(machine: Hardware, spec: _ClusterFile, read: Quantities) -> Hardware:
    """Return a machine with what the file says of its hosts and its network, and of how well that was measured."""
    usual = machine.fabric or Fabric()
    host = read.optional(spec.host_memory, "B", "cluster.host_memory")
    fabric = dataclasses.replace(
        usual,
        nic_bytes_per_s=usual.nic_bytes_per_s if spec.nic is None else parse_network_rate(spec.nic, place="nic"),
        host_memory_bytes=usual.host_memory_bytes if host is None else host,
        deviation=usual.deviation if spec.deviation is None else spec.deviation,
    )
    return machine if fabric == usual else dataclasses.replace(machine, fabric=fabric)
