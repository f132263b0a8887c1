"""Nsight Systems: the SQLite file of ``nsys export`` and the tables of ``nsys stats``."""

from perfmodel.formats.nsys import sqlite, stats

READERS = (sqlite, stats)

__all__ = ["READERS"]
