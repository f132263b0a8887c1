"""The command line: one small module for each command. Only this package defines exit codes."""
