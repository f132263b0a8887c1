"""What stands behind each number of a diagnosis."""
