"""Hardware counters of one training step, read by NVIDIA Nsight Compute (`ncu`): the GPU's
executed work, not the model's formula."""
