"""Servers of language models under load: latency by load, and the load at which a limit is kept."""
