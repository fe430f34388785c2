from tests.integration.compare.conftest import collector, store

__all__ = ["collector", "store"]
