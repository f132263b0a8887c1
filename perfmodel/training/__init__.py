"""Training of a whole model on a cluster: time of a step, memory of each stage, what-ifs and search."""
