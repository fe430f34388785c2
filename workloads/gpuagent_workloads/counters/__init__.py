"""Hardware counters of one training step, read by NVIDIA Nsight Compute (`ncu`): what the GPU executed, not what the
model asks for."""
