"""The stores and the command line of comparisons serve here, too."""

from tests.integration.compare.conftest import collector, store

__all__ = ["collector", "store"]
