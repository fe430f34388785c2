"""What workloads share that measure a platform's parts rather than a training run."""
