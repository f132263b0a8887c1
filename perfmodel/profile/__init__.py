"""A profile and its time line: what every reader returns."""
