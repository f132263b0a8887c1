"""Readers of benchmark records, one module for each tool; `perfmodel.records.runs` finds them by their names."""
