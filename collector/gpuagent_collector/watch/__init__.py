"""Nodes, GPUs and runs as they are now: the latest samples, and the runs under way."""
