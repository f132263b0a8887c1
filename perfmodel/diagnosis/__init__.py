"""Where the wall time of a traced run goes, why, and what would bring it back."""
