"""Measuring: timer, stopping rule, telemetry, the runner of a benchmark, its record, and calibration."""
