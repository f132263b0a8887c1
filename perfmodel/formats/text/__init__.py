"""What readers of textual reports share."""
