"""Launching on connected agents: their selection, the progress of the work, its output."""
