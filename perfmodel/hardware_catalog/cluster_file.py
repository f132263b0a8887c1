"""Reading a cluster from a file: which machine, how many, and the network between them."""

from __future__ import annotations

import os
from typing import Any

import msgspec

from perfmodel.cluster.cluster import Cluster
from perfmodel.core.units import parse_quantity
from perfmodel.errors import InputFileError, PerfModelError, nearest
from perfmodel.files import read_document
from perfmodel.hardware_catalog.find import hardware
from perfmodel.prediction.latency.tables import Quantity


class _ClusterFile(msgspec.Struct, forbid_unknown_fields=True):
    """The table ``[cluster]`` of a file of its own."""

    hardware: str
    gpus: int
    gpus_per_node: int | None = None
    nvlink_domain: int | None = None
    nic: str | None = None
    nic_efficiency: float | None = None
    alpha: Quantity | None = None
    oversubscription: float | None = None
    source: str = ""
    note: str = ""


def read_cluster(path: str | os.PathLike[str]) -> Cluster:
    """Return the cluster that a TOML, YAML or JSON file describes in its table ``[cluster]``.

    ``hardware`` and ``gpus`` are needed; ``gpus_per_node``, ``nvlink_domain``, ``nic``, ``nic_efficiency``, ``alpha``
    and ``oversubscription`` are by default those of the machine's specification.

    Raises
    ------
    InputFileError
        When the file cannot be read, a key is unknown or missing, or a value is impossible.
    """
    place = os.fspath(path)
    document = read_document(path)
    table: Any = document.get("cluster") if isinstance(document, dict) else None
    if not isinstance(table, dict):
        raise InputFileError("has no table [cluster].", place=place, remedy="It needs hardware and gpus.")
    try:
        spec = msgspec.convert(table, _ClusterFile)
        return Cluster.of(
            hardware(spec.hardware),
            spec.gpus,
            gpus_per_node=spec.gpus_per_node,
            nic=spec.nic,
            nvlink_domain=spec.nvlink_domain,
            nic_efficiency=spec.nic_efficiency,
            alpha_s=None if spec.alpha is None else parse_quantity(spec.alpha, "s"),
            oversubscription=spec.oversubscription,
        )
    except msgspec.ValidationError as error:
        wrong = next((key for key in table if key not in _ClusterFile.__struct_fields__), "")
        hint = nearest(wrong, _ClusterFile.__struct_fields__) if wrong else ""
        raise InputFileError(f"{error}.", place=f"{place}: cluster", remedy=hint) from None
    except PerfModelError as error:
        raise InputFileError(error.message, place=f"{place}: cluster", remedy=error.remedy) from None
