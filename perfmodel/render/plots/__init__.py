"""Plots; the only importers of matplotlib."""
