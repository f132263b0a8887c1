"""The command line: one thin file per command. The only place that knows exit codes."""
