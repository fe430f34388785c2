"""The gpuagent collector: receives samples over gRPC, stores them in DuckDB and compares platforms.

In a notebook: `from gpuagent_collector import connect`, then `connect().sql("FROM runs").df()`.
"""

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gpuagent_collector.notebook import Connection

__version__ = "0.1.0"
__all__ = ["__version__", "connect"]


def connect(
    place: str | Path | None = None,
    *,
    token_file: str | Path | None = None,
    ca_file: str | Path | None = None,
    client_cert: str | Path | None = None,
    client_key: str | Path | None = None,
) -> "Connection":
    """Open a collector (`HOST:PORT`) or a store (a path, or `ducklake:PATH`) for reading; close it, or use `with`.

    Args:
        place: None: the collector in GPUAGENT_COLLECTOR or at the default address; runs.duckdb where none listens.
        token_file: with the collector's token; None: where `collector serve` puts it.
        ca_file: with the CA that its certificate comes from; None: as GPUAGENT_CA_FILE says, and without that no TLS.
        client_cert: certificate to show where the collector asks for one; None: as GPUAGENT_CLIENT_CERT says.
        client_key: that certificate's key; None: as GPUAGENT_CLIENT_KEY says.

    Raises:
        GpuAgentError: there is nothing to read there, or it cannot be read.
    """
    from gpuagent_collector.notebook import find_tls, open_connection

    tls = find_tls(ca_file, client_cert, client_key)
    return open_connection(place, Path(token_file) if token_file else None, tls)
