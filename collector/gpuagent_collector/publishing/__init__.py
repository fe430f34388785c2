"""Runs for trackers of experiments, so that these show what was measured beside the user's own runs."""
