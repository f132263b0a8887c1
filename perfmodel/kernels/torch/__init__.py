"""Kernels made of torch calls: the library's own operator, and compositions of simple operators."""
