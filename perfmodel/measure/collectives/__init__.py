"""Collectives, measured by all ranks of a job together."""
