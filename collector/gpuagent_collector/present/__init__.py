"""Answers on their way to a terminal, a file or another program."""
