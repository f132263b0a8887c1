"""The benchmark record and tables of measurements: schema, readers, writers."""
