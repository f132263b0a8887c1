"""Rules that advise a change; one file per kind of evidence."""
