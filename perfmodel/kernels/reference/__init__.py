"""What each operator should compute, in float64: one file an operator, each with a function ``reference``."""
