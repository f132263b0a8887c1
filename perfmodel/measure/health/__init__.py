"""Whether a device performs as it should: readings, verdicts and likely causes."""
