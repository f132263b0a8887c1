"""Plots of the rows of benchmark records."""
