"""The place of a run, a node or a GPU among all others that ran the same on the same GPU model."""
