"""Whole models as counted lists of operators."""
