"""A profile, its time line, and the changes that could be made to it: the common result of all readers."""
