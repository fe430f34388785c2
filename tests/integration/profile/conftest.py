"""Stores with runs whose traces are known."""

from tests.integration.compare.conftest import store

__all__ = ["store"]
