"""Nsight Compute: the CSV of its details page and of its raw page."""

from perfmodel.formats.ncu.reader import NAME, PRECEDENCE, read, sniff

__all__ = ["NAME", "PRECEDENCE", "read", "sniff"]
