"""What a diagnosis advises, one file a kind of evidence."""
