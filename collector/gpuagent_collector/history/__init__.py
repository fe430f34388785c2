"""Figures of a workload over time: levels, changes between them, and the facts that changed there."""
