"""AMD's rocprofv3, rocprofv2 and rocprof: the CSV of their traces, counters and statistics."""

from perfmodel.formats.rocprof.reader import NAME, PRECEDENCE, read, sniff

__all__ = ["NAME", "PRECEDENCE", "read", "sniff"]
