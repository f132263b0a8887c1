"""Matrix products: tiles, waves, split-k."""
