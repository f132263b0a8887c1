"""Renderers: one file per format. Each takes a `Report` and nothing else."""
