"""Plain tables with a name and a time."""

from perfmodel.formats.table.reader import NAME, PRECEDENCE, read, sniff

__all__ = ["NAME", "PRECEDENCE", "read", "sniff"]
