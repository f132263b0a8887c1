"""Traces of PyTorch's profiler."""

from perfmodel.formats.torch_trace.reader import NAME, PRECEDENCE, read, sniff

__all__ = ["NAME", "PRECEDENCE", "read", "sniff"]
