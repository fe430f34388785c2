"""Runs that belong together: which are alike, their figures, their groups and their pairs."""
