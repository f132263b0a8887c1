"""Many GPUs: topology of nodes and links, and collectives beyond one node."""
