"""Operators of the framework as operators of the model."""
