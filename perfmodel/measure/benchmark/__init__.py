"""Running kernels and comparing them with the model: presets, settings, runs and their rows."""
