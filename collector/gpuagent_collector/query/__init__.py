"""Reading of the store: the check of statements, their execution, the places to read from."""
