"""``key_averages()`` of PyTorch's profiler: the printed table, or its events as JSON or CSV."""

from perfmodel.formats.key_averages.reader import NAME, PRECEDENCE, read, sniff

__all__ = ["NAME", "PRECEDENCE", "read", "sniff"]
