"""Which nodes a launch or a cancellation means: the hello names a node by its UUID, the store knows the rest."""

from collections.abc import Sequence

import duckdb

from gpuagent_collector.errors import StoreError
from gpuagent_collector.store import Store

_NODES = """
SELECT node_id FROM nodes
WHERE ($node = '' OR $node IN (hostname, node_uuid, node_id::VARCHAR)) AND ($platform = '' OR platform = $platform)
"""

_NODES_OF_RUN = """
SELECT node_id FROM run_requests WHERE run_id = ?
UNION
SELECT node_id FROM run_states WHERE run_id = ? AND session_id IS NOT NULL
"""


def find_nodes(store: Store, *, node: str, platform: str) -> list[int]:
    """Return the nodes with this hostname, UUID or key, of this platform; empty means any.

    Raises:
        StoreError: the store cannot be read.
    """
    return _ids(store, _NODES, {"node": node, "platform": platform})


def nodes_of_run(store: Store, run_id: str) -> list[int]:
    """Return the nodes that said something of a run.

    Raises:
        StoreError: the store cannot be read.
    """
    return _ids(store, _NODES_OF_RUN, [run_id, run_id])


def _ids(store: Store, sql: str, parameters: Sequence[str] | dict[str, str]) -> list[int]:
    connection = store.connect()
    try:
        return [node_id for (node_id,) in connection.execute(sql, parameters).fetchall()]
    except duckdb.Error as error:
        raise StoreError(f"cannot read the store {store.spec.path}: {error}") from error
    finally:
        connection.close()
