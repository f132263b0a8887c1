"""The physics: units, dtypes, hardware, work, roofline, results and reports. Imports numpy only."""
