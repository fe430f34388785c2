"""Where a workload should run: by its time, energy and cost there, and what bounds it."""
