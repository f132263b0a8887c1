"""Timing one call: what a sample is, when samples suffice, and their statistics."""
