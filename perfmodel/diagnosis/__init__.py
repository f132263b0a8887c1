"""Where the wall time of a run goes, why, and which changes would save time."""
