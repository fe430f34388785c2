"""The number of repeats that a new experiment needs, from the spread of existing runs."""
