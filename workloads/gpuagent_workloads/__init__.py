"""Deep-learning workloads that report their phases, steps and results through a run directory."""
