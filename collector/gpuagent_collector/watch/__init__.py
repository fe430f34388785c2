"""How things stand now: the latest sample of each node and GPU, and the runs under way."""
