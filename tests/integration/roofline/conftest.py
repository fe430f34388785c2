"""Stores with runs whose place in a roofline is known by hand."""

from tests.integration.compare.conftest import collector, store

__all__ = ["collector", "store"]
