"""Samples on time: the sampler, its rows and what reading costs."""
