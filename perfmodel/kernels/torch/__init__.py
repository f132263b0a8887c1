"""Kernels made of torch calls: the library's own operator, and the composition of simple ones."""
