"""Statistics of comparisons: estimates, intervals and verdicts."""
