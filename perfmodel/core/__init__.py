"""The physics: units, dtypes, hardware, work, the roofline, vocabularies and reports. It imports numpy only."""
