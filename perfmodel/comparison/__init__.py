"""Two benchmark records against each other."""
