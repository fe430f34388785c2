"""Answers: what a command prints, a page shows and a file has, one module each."""
