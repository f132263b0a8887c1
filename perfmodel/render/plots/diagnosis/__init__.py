"""Plots of a diagnosis: where the time goes, and the run over time."""
