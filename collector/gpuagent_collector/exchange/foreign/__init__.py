"""Results of foreign benchmark programs, read as runs that compare like those of gpuagent."""
