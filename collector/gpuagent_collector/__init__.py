"""The gpuagent collector: receives samples over gRPC, stores them in DuckDB and compares platforms."""

__version__ = "0.1.0"
