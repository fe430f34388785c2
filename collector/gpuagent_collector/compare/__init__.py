"""Comparing runs: like with like, with intervals and verdicts that say what the data can show."""
