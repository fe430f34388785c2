"""Runs as they are stored: selection, facets, cells and series."""
