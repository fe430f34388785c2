"""The stores of comparisons serve here, too."""

from tests.integration.compare.conftest import store

__all__ = ["store"]
