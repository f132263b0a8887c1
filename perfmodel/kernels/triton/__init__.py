"""Our own kernels, in Triton: ``OPERATOR.py`` declares them without importing triton, ``_OPERATOR.py`` has the code.

Without a GPU they run under Triton's interpreter (``TRITON_INTERPRET=1``), which tests them and is too slow to time.
"""
