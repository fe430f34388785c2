"""The SQL of a snapshot. Each statement reads recent rows only, so that its cost does not grow with the store."""

# The clock of the process that holds the store: the client's may differ.
NOW = "now()::TIMESTAMP"

# Older samples are not shown: a node without younger ones is silent. Agents that were slowed send every 10 s.
RECENT_SECONDS = 30

# A range of times lets DuckDB skip all other parts of a table. It has an end because an agent whose clock is a day
# ahead would otherwise have all its samples read.
_RECENT = f"time BETWEEN {NOW} - INTERVAL {RECENT_SECONDS} SECOND AND {NOW} + INTERVAL {RECENT_SECONDS} SECOND"

# Figures of host_samples.
HOST_COLUMNS = (
    "cpu_percent",
    "memory_used_bytes",
    "memory_total_bytes",
    "load_1m",
    "cpu_power_watts",
    "disk_read_bytes_per_second",
    "disk_write_bytes_per_second",
    "network_receive_bytes_per_second",
    "network_send_bytes_per_second",
)

# Figures of gpu_samples.
GPU_COLUMNS = (
    "utilization_percent",
    "sm_active_percent",
    "tensor_active_percent",
    "dram_active_percent",
    "memory_used_bytes",
    "power_watts",
    "temperature_celsius",
    "sm_clock_mhz",
    "throttle_reasons",
    "process_count",
    "energy_joules",
    "pcie_send_bytes_per_second",
    "pcie_receive_bytes_per_second",
    "nvlink_send_bytes_per_second",
    "nvlink_receive_bytes_per_second",
)


def _latest(columns: tuple[str, ...]) -> str:
    """Return SQL for each column's last reading: they come at different rates, and arg_max passes over NULL."""
    return ",\n        ".join(f"arg_max({column}, time) AS {column}" for column in columns)


# Each node that delivered in the last hour, as it was last sampled.
NODES_SQL = f"""
WITH delivered AS (
    SELECT session_id, max(committed_at) AS committed_at FROM marks GROUP BY session_id
), heard AS (
    SELECT node_id, max(committed_at) AS heard_at FROM delivered JOIN sessions USING (session_id) GROUP BY node_id
), recent AS (
    SELECT
        node_id, max(time) AS time,
        {_latest(HOST_COLUMNS)}
    FROM host_samples WHERE {_RECENT} GROUP BY node_id
), clocks AS (
    SELECT node_id, arg_max(offset_seconds, time) AS clock_offset_seconds FROM clock_offsets
    WHERE time BETWEEN {NOW} - INTERVAL 1 DAY AND {NOW} + INTERVAL 1 DAY GROUP BY node_id
)
SELECT
    nodes.node_id, node_uuid, hostname, platform, cpu_threads,
    epoch({NOW} - recent.time) AS sample_age_seconds, epoch({NOW} - heard_at) AS heard_age_seconds,
    epoch({NOW} - ended_at) AS ended_age_seconds, clock_offset_seconds, recent.* EXCLUDE (node_id, time)
FROM nodes JOIN heard USING (node_id) LEFT JOIN recent USING (node_id) LEFT JOIN clocks USING (node_id)
WHERE heard_at > {NOW} - INTERVAL 1 HOUR
ORDER BY platform, hostname, node_id
""".strip()  # noqa: S608 - names of the schema

# Each GPU and MIG instance that its node's newest session found, as it was last sampled.
GPUS_SQL = f"""
WITH recent AS (
    SELECT
        node_id, device_id, max(time) AS time,
        {_latest(GPU_COLUMNS)}
    FROM gpu_samples WHERE {_RECENT} GROUP BY node_id, device_id
), known AS (
    FROM session_devices WHERE session_id IN (SELECT session_id FROM nodes)
    QUALIFY row_number() OVER (PARTITION BY session_id, device_id ORDER BY time DESC) = 1
)
SELECT
    known.node_id, known.device_id, known.parent_device_id, known.uuid,
    coalesce(board.device_index, known.device_index) AS device_index,  -- NVML counts a GPU's instances anew
    known.gpu_instance_id, known.name, known.memory_total_bytes, known.power_limit_watts,
    recent.* EXCLUDE (node_id, device_id, time)
FROM known
LEFT JOIN recent ON recent.node_id = known.node_id AND recent.device_id = known.device_id
LEFT JOIN known AS board ON board.session_id = known.session_id AND board.device_id = known.parent_device_id
ORDER BY known.node_id, device_index, known.gpu_instance_id NULLS FIRST, known.compute_instance_id
""".strip()  # noqa: S608 - names of the schema

# The runs under way, then those that ended in the last hour, the newest first.
RUNS_SQL = f"""
WITH shown AS (
    FROM runs WHERE status IN ('queued', 'running') OR ended_at > {NOW} - INTERVAL 1 HOUR
    ORDER BY ended_at DESC NULLS FIRST, status = 'queued', coalesce(started_at, queued_at) DESC LIMIT 500
), phases AS (
    SELECT run_id, arg_max(name, time) AS phase FROM run_events
    WHERE event = 'phase' AND run_id IN (SELECT run_id FROM shown) GROUP BY run_id
), ranks AS (
    SELECT run_id, sum(items) / sum(wall_seconds) AS items_per_second FROM steps
    WHERE {_RECENT} AND items IS NOT NULL AND wall_seconds > 0 GROUP BY run_id, rank
), rates AS (
    SELECT run_id, sum(items_per_second) AS live_rate FROM ranks GROUP BY run_id
), results AS (
    SELECT run_id, arg_max(value, computed_at) AS throughput FROM run_metrics
    WHERE metric = 'throughput' AND run_id IN (SELECT run_id FROM shown) GROUP BY run_id
)
SELECT
    run_id, workload, shown.platform, hostname, interference, repeat, status, exit_code, reason, phase,
    epoch(coalesce(shown.ended_at, {NOW}) - shown.started_at) AS elapsed_seconds,
    epoch({NOW} - shown.ended_at) AS ended_age_seconds,
    CASE WHEN shown.ended_at IS NULL THEN live_rate ELSE throughput END AS items_per_second
FROM shown
LEFT JOIN nodes USING (node_id)
LEFT JOIN phases USING (run_id)
LEFT JOIN rates USING (run_id)
LEFT JOIN results USING (run_id)
ORDER BY shown.ended_at DESC NULLS FIRST, status = 'queued', coalesce(shown.started_at, queued_at) DESC, run_id
""".strip()  # noqa: S608 - names of the schema
