"""What sources and facts share: reading the kernel's files, rates, processes, control groups, and the door to NVML."""
