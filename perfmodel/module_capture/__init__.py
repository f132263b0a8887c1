"""A PyTorch module as operators, by module, without running it."""
