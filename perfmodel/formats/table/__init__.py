"""Plain tables with a name and a time."""
