"""Reference kernels that can be run and timed. The only package that imports torch.

A kernel is one entry of ``KERNELS`` in ``kernels/<backend>/<operator>.py``; a new file is enough to add some.
``kernels/reference/<operator>.py`` holds the float64 results that every kernel is checked against.
"""
