"""The kernels, copies and gaps that account for the time of each dimension."""
