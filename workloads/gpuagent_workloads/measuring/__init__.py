"""Code of the workloads that measure a platform's parts rather than a training run."""
