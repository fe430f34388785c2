"""The gpuagent node agent: launches workloads and streams CPU, memory and GPU samples to a collector."""

__version__ = "0.1.0"
