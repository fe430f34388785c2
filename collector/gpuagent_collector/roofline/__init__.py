"""Roofline: the performance of runs against the limits of their device, by FLOPs per byte moved."""
