"""Data for the workloads: fetched, read strictly, or synthetic."""
