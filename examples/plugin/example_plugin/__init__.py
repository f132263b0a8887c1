"""One of each thing that can be added to perfmodel from another distribution."""
