"""Helpers of tests and benchmarks."""
