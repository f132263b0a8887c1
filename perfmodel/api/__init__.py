"""Public functions that take a machine by name as well: what a notebook calls.

The rooms below take a `Hardware`; they know no catalog. Here a name, an alias or a spec file stands for one.
"""

from __future__ import annotations

from perfmodel.api.machines import Machine, Model, find_machine, known_machines
from perfmodel.api.models import Cluster, Deployment, search, train
from perfmodel.api.pictures import html_report, roofline_plot
from perfmodel.api.predictions import bound_time, choose, predict, predict_model, sweep
from perfmodel.api.records import compare, read_record, validate
from perfmodel.api.runs import (
    diagnose,
    fuse_operators,
    headroom,
    profile_limits,
    project,
    rank_candidates,
    what_if,
)

__all__ = [
    "Cluster",
    "Deployment",
    "Machine",
    "Model",
    "bound_time",
    "choose",
    "compare",
    "diagnose",
    "find_machine",
    "fuse_operators",
    "headroom",
    "html_report",
    "known_machines",
    "predict",
    "predict_model",
    "profile_limits",
    "project",
    "rank_candidates",
    "read_record",
    "roofline_plot",
    "search",
    "sweep",
    "train",
    "validate",
    "what_if",
]
