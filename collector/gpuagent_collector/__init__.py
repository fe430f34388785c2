"""The gpuagent collector, which receives samples over gRPC, stores them in DuckDB and compares platforms.

In a notebook: `from gpuagent_collector import connect`, then `connect().sql("FROM runs").df()`.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    from gpuagent_collector.notebook import Connection

__version__ = "0.1.0"
__all__ = ["__version__", "connect"]


def connect(
    place: "str | Path | None" = None,
    *,
    token_file: "str | Path | None" = None,
    ca_file: "str | Path | None" = None,
    client_cert: "str | Path | None" = None,
    client_key: "str | Path | None" = None,
) -> "Connection":
    """Open a collector (`HOST:PORT`) or a store (a path, or `ducklake:PATH`) for reading; close it after use.

    Args:
        place: None: the collector in GPUAGENT_COLLECTOR or at the default address; runs.duckdb where none listens.
        token_file: the collector's token; None: that of `collector serve`.
        ca_file: the CA of its certificate; None: GPUAGENT_CA_FILE, or no TLS without it.
        client_cert: certificate for a collector that requires one; None: GPUAGENT_CLIENT_CERT.
        client_key: that certificate's key; None: GPUAGENT_CLIENT_KEY.

    Raises:
        GpuAgentError: neither exists, or it cannot be read.
    """
    from pathlib import Path  # a tenth of `collector --help`

    from gpuagent_collector.notebook import find_tls, open_connection

    tls = find_tls(ca_file, client_cert, client_key)
    return open_connection(place, Path(token_file) if token_file else None, tls)
