"""Kernels in Triton: ``OPERATOR.py`` declares them without importing triton, ``_OPERATOR.py`` has the code.

Without a GPU they run in Triton's interpreter (``TRITON_INTERPRET=1``): good enough for tests, too slow for timing.
"""
