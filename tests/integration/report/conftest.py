"""Stores to report on, and how a report is read."""

from tests.integration.compare.conftest import collector, store

__all__ = ["collector", "store"]
