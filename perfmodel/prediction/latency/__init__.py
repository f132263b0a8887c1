"""The latency model: a closed form for each family of kernels, its constants, their fit and their uncertainty."""
