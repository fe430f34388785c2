"""Recommendations of a place for a workload: by its time, energy and cost there, and what bounds it."""
