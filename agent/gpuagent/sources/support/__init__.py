"""Shared parts of sources and facts: the kernel's files, rates, processes, control groups, and NVML."""
