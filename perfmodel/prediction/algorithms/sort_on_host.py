"""Sorting keys that lie on the host: there, or on a GPU with the copies over PCIe."""

from __future__ import annotations

from perfmodel.prediction.algorithms.base import Problem
from perfmodel.prediction.algorithms.sort import costs_on_host

PROBLEM = Problem(
    "sort_on_host",
    op="sort",
    size="cols",
    sizes=(64.0, 2.0**28),
    costs=costs_on_host,
    defaults={"cols": 2**20},
    main=False,
    note="Keys lie on the host; a GPU sorts them between two copies over PCIe, from pinned memory.",
)
