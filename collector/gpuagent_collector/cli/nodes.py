"""`collector nodes`: list the nodes and their hardware."""

import sys
from collections.abc import Mapping
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import click

from gpuagent_collector.cli.options import ReaderOptions, ReadingCommand, answer_options
from gpuagent_collector.present.formats import OutputFormat
from gpuagent_collector.run_sessions import PRESENT_SQL
from gpuagent_common.clocks import describe_offset, is_clock_wrong
from gpuagent_common.naming import shared_identity
from gpuagent_common.text import harmless

if TYPE_CHECKING:
    from gpuagent_collector.present.terminal import ListColumn

_EXAMPLES = """\b
Examples:
  collector nodes
  collector nodes --json
  collector nodes --store runs.duckdb --format csv
"""

# Each node, and the GPUs that it has.
NODES_SQL = f"""
WITH {PRESENT_SQL}, gpus AS (
    SELECT
        session_id, (list(name ORDER BY device_index) FILTER (parent_device_id IS NULL))[1:16] AS gpu_names,
        (sum(memory_total_bytes) FILTER (parent_device_id IS NULL))::BIGINT AS gpu_memory_bytes,
        count(parent_device_id) AS mig_instances
    FROM (
        FROM session_devices
        QUALIFY row_number() OVER (PARTITION BY session_id, device_id ORDER BY time DESC) = 1
    )
    GROUP BY session_id
), named AS (
    SELECT node_id, list(platform ORDER BY last DESC)[1:16] AS platforms
    FROM (
        SELECT node_id, platform, max(started_at) AS last FROM sessions WHERE platform IS NOT NULL GROUP BY ALL
    )
    GROUP BY node_id
), dropped AS (
    SELECT session_id, sum(readings)::BIGINT AS impossible_readings FROM impossible_readings GROUP BY session_id
)
SELECT
    hostname, platform, virtualization, container, orchestrator, cpu_model, cpu_sockets, cpu_cores, cpu_threads,
    cpu_limit_cores, memory_total_bytes, memory_limit_bytes, gpu_names, gpu_memory_bytes, mig_instances,
    driver_version, os, kernel, architecture, cloud_provider, instance_type, labels, agent_version, started_at,
    ended_at, last_seen_at, clock_offset_seconds, coalesce(same_identity, []) AS same_identity, impossible_readings,
    node_id, node_uuid, platforms
FROM present LEFT JOIN gpus USING (session_id) LEFT JOIN twins USING (node_id) LEFT JOIN dropped USING (session_id)
    LEFT JOIN named USING (node_id)
ORDER BY platform, hostname
""".strip()  # noqa: S608 - no value in it


@click.command(cls=ReadingCommand, epilog=_EXAMPLES)
@answer_options
def command(reader: ReaderOptions, output_format: OutputFormat, show_sql: bool) -> None:
    """List the nodes and their hardware.

    Includes the environment of each and its last delivery. A wider terminal shows more columns.
    """
    if show_sql:
        click.echo(NODES_SQL, err=True)
    with reader.open() as store:
        table = store.sql(NODES_SQL)
    if output_format is not OutputFormat.TABLE:
        from gpuagent_collector.present.data import print_table

        print_table(table, output_format)
    elif table.num_rows:
        from gpuagent_collector.present.terminal import ListColumn, plain_console, print_list

        rows = table.to_pylist()
        columns = _columns()
        if any(row["impossible_readings"] for row in rows):
            # Those beyond physical limits, which were left out.
            columns.append(
                ListColumn(
                    title="impossible readings",
                    show=lambda row: f"{row['impossible_readings']:,}" if row["impossible_readings"] else None,
                    rank=2,
                    right=True,
                )
            )
        print_list(columns, rows, plain_console(sys.stdout))
        for row in rows:
            name = harmless(row["hostname"] or row["node_uuid"] or "unnamed")
            if row["same_identity"]:
                click.echo(f"warning: {name}: {shared_identity(row['same_identity'])}", err=True)
            if is_clock_wrong(row["clock_offset_seconds"]):
                offset = describe_offset(row["clock_offset_seconds"])
                click.echo(f"warning: {name}: its clock is {offset}, and so are its times; set the clock", err=True)
    else:
        click.echo("no nodes yet; on each node run: gpuagent start")


def _columns() -> "list[ListColumn]":
    from gpuagent_collector.present.human import ago
    from gpuagent_collector.present.terminal import ListColumn
    from gpuagent_collector.times import utc_now

    now = utc_now()

    def last_seen(row: Mapping[str, Any]) -> str | None:
        if row["last_seen_at"] is None:
            return None
        if not row["ended_at"]:
            return ago(row["last_seen_at"], now)
        # It said so by its own clock.
        return f"left {ago(row['ended_at'] + timedelta(seconds=row['clock_offset_seconds'] or 0), now)}"

    def clock(row: Mapping[str, Any]) -> str | None:
        offset_seconds = row["clock_offset_seconds"]
        return None if offset_seconds is None else describe_offset(offset_seconds)

    return [
        ListColumn(title="node", show=lambda row: row["hostname"], rank=0, max_width=24),
        ListColumn(title="platform", show=lambda row: ", ".join(row["platforms"] or ()), rank=1, max_width=24),
        ListColumn(title="CPUs", show=_cpus, rank=3, right=True),
        ListColumn(title="memory", show=_memory, rank=4, right=True),
        ListColumn(title="GPUs", show=_gpus, rank=2, max_width=24),
        ListColumn(title="environment", show=_environment, rank=6),
        ListColumn(title="last seen", show=last_seen, rank=5),
        ListColumn(title="clock", show=clock, rank=12),
        ListColumn(title="driver", show=lambda row: row["driver_version"], rank=8),
        ListColumn(title="CPU", show=lambda row: row["cpu_model"], rank=7),
        ListColumn(title="instance", show=lambda row: row["instance_type"], rank=9),
        ListColumn(title="kernel", show=lambda row: row["kernel"], rank=10),
        ListColumn(title="agent", show=lambda row: row["agent_version"], rank=11),
    ]


def _cpus(row: Mapping[str, Any]) -> str | None:
    """Return the logical CPUs, after the limit of a container: 4 of 64."""
    threads, limit = row["cpu_threads"], row["cpu_limit_cores"]
    return _limit_of(None if limit is None else f"{limit:g}", None if threads is None else str(threads))


def _memory(row: Mapping[str, Any]) -> str | None:
    from gpuagent_collector.present.human import notation

    total, limit = row["memory_total_bytes"], row["memory_limit_bytes"]
    if None not in (total, limit) and limit >= total:  # no limit in effect
        limit = None
    return _limit_of(*(None if size is None else notation([size], "bytes").write(size) for size in (limit, total)))


def _limit_of(limit: str | None, total: str | None) -> str | None:
    return f"{limit} of {total or '?'}" if limit else total


def _gpus(row: Mapping[str, Any]) -> str | None:
    """Return the GPUs by name, after their number of MIG instances: 7 MIG of 1 × NVIDIA H200."""
    names: list[str] = [name or "unknown" for name in row["gpu_names"] or ()]
    counted = ", ".join(f"{names.count(name)} × {name}" for name in dict.fromkeys(names))
    return f"{row['mig_instances']} MIG of {counted}" if row["mig_instances"] else counted or None


def _environment(row: Mapping[str, Any]) -> str | None:
    """Return the layers around the agent, from the outside in: kvm, docker, kubernetes."""
    facets = [row[name] for name in ("virtualization", "container", "orchestrator")]
    around = [facet for facet in facets if facet not in (None, "none")]
    return ", ".join(around) or ("bare" if "none" in facets else None)
