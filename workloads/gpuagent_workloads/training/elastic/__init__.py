"""Training that survives failed ranks and admits new ones: checkpoints, and the cost of restarts."""
