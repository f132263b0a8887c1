"""How long an operator should take: bound, expected time, interval."""
