"""How many repeats a new experiment needs, from the spread of the runs at hand."""
