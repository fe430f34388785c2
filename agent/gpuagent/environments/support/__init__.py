"""Shared parts of environments."""
