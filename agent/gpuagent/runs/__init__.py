"""The life of a run: planning, execution, events and output."""
