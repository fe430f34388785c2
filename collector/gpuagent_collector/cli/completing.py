"""Completions for the shell; empty without a store or collector that answers."""

from contextlib import closing
from typing import Any

import click


def stored_workloads(context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[str]:
    """Return the workloads of the runs at the place given by earlier options, or at the default place."""
    from gpuagent_collector.query.reader import open_reader
    from gpuagent_common.connection import tls_files
    from gpuagent_common.errors import GpuAgentError

    given: dict[str, Any] = context.params
    try:
        tls = tls_files(given.get("ca_file"), given.get("client_cert"), given.get("client_key"))
        store = given.get("store") or next(iter(context.meta.get("stores", ())), None)
        reader = open_reader(address=given.get("collector"), token_file=given.get("token_file"), store=store, tls=tls)
        with closing(reader):
            found = reader.sql("SELECT DISTINCT workload FROM runs WHERE workload IS NOT NULL ORDER BY workload")
        return [name for name in map(str, found.column(0).to_pylist()) if name.startswith(incomplete)]
    except (GpuAgentError, ValueError, OSError):
        return []


def facets(_context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[str]:
    """Return the facets of --by; after a comma, those not given yet."""
    from gpuagent_collector.runs.facets import FACETS

    before, comma, begun = incomplete.rpartition(",")
    names = [*(facet.name for facet in FACETS), "argument:", "parameter:", "label:"]
    return [f"{before}{comma}{name}" for name in names if name.startswith(begun) and name not in before.split(",")]
