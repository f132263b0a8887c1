"""Kernels that can be run and timed. The only package that imports torch.

A kernel is an entry of ``KERNELS`` in ``kernels/<backend>/<operator>.py``; a new file adds kernels.
``kernels/reference/<operator>.py`` computes the operator in float64, and every kernel is checked against it.
"""
