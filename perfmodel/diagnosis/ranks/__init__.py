"""The ranks of one job: where the time of each goes, who waits for whom, and what the exchanges reach."""
