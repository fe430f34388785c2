"""Benchmarks: `make bench` prints their tables. Speed is measured here and nowhere in the tests."""
