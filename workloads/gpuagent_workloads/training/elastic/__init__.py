"""Training that survives lost ranks and takes in new ones: checkpoints, and what restarts cost."""
