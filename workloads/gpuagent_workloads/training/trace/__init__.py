"""The GPU's activities, from a short torch.profiler trace apart from the measured steps."""
