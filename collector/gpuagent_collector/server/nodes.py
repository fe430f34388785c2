"""Where a run is."""

import duckdb

from gpuagent_collector.errors import StoreError
from gpuagent_collector.store import Store

_NODES_OF_RUN = """
SELECT node_id FROM run_requests WHERE run_id = ?
UNION
SELECT node_id FROM run_states WHERE run_id = ? AND session_id IS NOT NULL
"""


def nodes_of_run(store: Store, run_id: str) -> list[int]:
    """Return the nodes that said something of a run.

    Raises:
        StoreError: the store cannot be read.
    """
    connection = store.connect()
    try:
        return [node_id for (node_id,) in connection.execute(_NODES_OF_RUN, [run_id, run_id]).fetchall()]
    except duckdb.Error as error:
        raise StoreError(f"cannot read the store {store.spec}: {error}") from error
    finally:
        connection.close()
