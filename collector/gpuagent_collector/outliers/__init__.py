"""Nodes and GPUs that differ from others of their kind, with the evidence."""
