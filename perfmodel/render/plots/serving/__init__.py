"""Plots of a served model: throughput against speed, latency against load, terms of a step, cache over time."""
