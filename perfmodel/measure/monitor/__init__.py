"""Live readings of GPUs, host and a process tree, and what is wrong in them."""
