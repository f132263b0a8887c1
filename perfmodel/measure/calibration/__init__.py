"""Sustained ceilings of this machine: memory, caches, arithmetic, launches, copies."""
