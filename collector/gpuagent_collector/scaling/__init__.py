"""Scaling: how a workload's throughput grows with its ranks."""
