"""How many values a second, and how small on disk: gpuagent's collector beside DuckDB alone and others' databases."""
