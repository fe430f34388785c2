"""Fuzzing: everything that reads what others wrote is given nonsense. `python -m tests.fuzz --help`."""
