"""The store: one DuckDB file, or a DuckLake."""

from gpuagent_collector.store.spec import Kind, StoreSpec
from gpuagent_collector.store.store import Store

__all__ = ["Kind", "Store", "StoreSpec"]
