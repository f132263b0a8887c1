"""AMD's rocprofv3, rocprofv2 and rocprof: their traces, counters and statistics as CSV, and rocprofv3's database."""

from perfmodel.formats.rocprof import reader, rocpd

READERS = (rocpd, reader)

__all__ = ["READERS"]
