"""Comparison of two benchmark records."""
