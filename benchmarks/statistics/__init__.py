"""Simulations of every statistical method; their tables are those of docs/statistics.md."""
