"""The hardware catalog: find, read, lint, detect and write specification files."""

from __future__ import annotations

from perfmodel.hardware_catalog.cluster_file import read_cluster
from perfmodel.hardware_catalog.find import hardware, load_all, machines_apart, same_machine
from perfmodel.hardware_catalog.read import read_hardware
from perfmodel.hardware_catalog.spec_folders import hardware_names

__all__ = ["hardware", "hardware_names", "load_all", "machines_apart", "read_cluster", "read_hardware", "same_machine"]
