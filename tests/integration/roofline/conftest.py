"""Stores with runs whose place in a roofline is known by hand."""

from tests.integration.compare.conftest import store

__all__ = ["store"]
