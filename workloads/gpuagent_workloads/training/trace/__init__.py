"""What the GPU did, from a short torch.profiler trace that is taken apart from the measured steps."""
