"""Traces of PyTorch's profiler."""

from perfmodel.formats.torch_trace.reader import ANY_SIZE, NAME, PRECEDENCE, read, sniff

__all__ = ["ANY_SIZE", "NAME", "PRECEDENCE", "read", "sniff"]
