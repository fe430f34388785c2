"""Experiments: many runs that answer one question, in an order fixed in advance."""
