from tests.integration.compare.conftest import any_store, collector, store

__all__ = ["any_store", "collector", "store"]
