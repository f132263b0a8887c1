"""Serving of a language model: step of an engine, memory, steady state, simulation of a load."""
