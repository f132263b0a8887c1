"""Plain tables with a name and a time."""

from perfmodel.formats.table.own import is_derived
from perfmodel.formats.table.reader import NAME, PRECEDENCE, holds_profile, read, sniff

__all__ = ["NAME", "PRECEDENCE", "holds_profile", "is_derived", "read", "sniff"]
