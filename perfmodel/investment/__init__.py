"""What is worth doing: Amdahl's law, economics, ranking, what-ifs."""
