"""Attention: many queries (prefill), and one or a few (decode)."""
