"""Values per second and bytes on disk: gpuagent's collector beside DuckDB alone and other databases."""
