"""Where the figures of a run come from: its own rows of each table, in the time that counts."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """Where a metric's readings come from.

    `relation` is a SELECT over the tables `windows` (run_id, node_id, from_time, to_time, measured: the time in which a
    run counts on each of its nodes), `lives` (run_id, started_at, ended_at) and `run_gpus` (run_id, node_id,
    device_id). It gives `run_id`, `part` and the columns that metrics use. $from_time and $to_time enclose all windows,
    $life_from and $life_to all lives, so that old rows are never read.
    """

    name: str
    relation: str


LIFE = Source(
    name="life",
    relation="""
        SELECT lives.run_id, windows.node_id AS part, lives.started_at, lives.ended_at,
               CASE WHEN windows.measured THEN windows.from_time END AS measure_from, windows.to_time AS measure_to
        FROM lives JOIN windows USING (run_id)""",
)
FIRST_STEPS = Source(
    name="first_steps",
    relation="""
        SELECT run_id, rank AS part, steps.time, lives.started_at
        FROM steps JOIN lives USING (run_id)
        WHERE steps.time BETWEEN $life_from AND $life_to""",
)
MEASURED_STEPS = Source(
    name="measured_steps",
    relation="""
        SELECT run_id, rank AS part, wall_seconds
        FROM steps JOIN lives USING (run_id)
        WHERE phase = 'measure' AND steps.time BETWEEN $life_from AND $life_to""",
)
RESULTS = Source(
    name="results",
    relation="""
        SELECT run_id, rank AS part, results.time, name, phase, value, unit
        FROM results JOIN lives USING (run_id)
        WHERE results.time BETWEEN $life_from AND $life_to""",
)
HOST = Source(
    name="host",
    relation="""
        SELECT windows.run_id, samples.node_id AS part, samples.*, sessions.cpu_threads
        FROM host_samples AS samples
        JOIN windows ON samples.node_id = windows.node_id AND samples.time BETWEEN from_time AND to_time
        LEFT JOIN sessions ON sessions.session_id = samples.session_id
        WHERE samples.time BETWEEN $from_time AND $to_time""",
)
PROCESSES = Source(
    name="processes",
    relation="""
        SELECT samples.*, samples.node_id AS part
        FROM process_samples AS samples
        JOIN windows ON samples.run_id = windows.run_id AND samples.node_id = windows.node_id
            AND samples.time BETWEEN from_time AND to_time
        WHERE samples.time BETWEEN $from_time AND $to_time""",
)
GPUS = Source(
    name="gpus",
    relation="""
        SELECT windows.run_id, samples.device_id AS part, samples.*
        FROM gpu_samples AS samples
        JOIN run_gpus ON samples.node_id = run_gpus.node_id AND samples.device_id = run_gpus.device_id
        JOIN windows ON windows.run_id = run_gpus.run_id AND windows.node_id = samples.node_id
            AND samples.time BETWEEN from_time AND to_time
        WHERE samples.time BETWEEN $from_time AND $to_time""",
)
RUN_GPUS = Source(name="run_gpus", relation="SELECT run_id, node_id AS part, device_id FROM run_gpus")
GPU_PROCESSES = Source(
    name="gpu_processes",
    relation="""
        SELECT windows.run_id, samples.device_id AS part,
               CASE WHEN samples.run_id IS DISTINCT FROM windows.run_id THEN samples.pid END AS other_pid
        FROM gpu_process_samples AS samples
        JOIN run_gpus ON samples.node_id = run_gpus.node_id AND samples.device_id = run_gpus.device_id
        JOIN windows ON windows.run_id = run_gpus.run_id AND windows.node_id = samples.node_id
            AND samples.time BETWEEN from_time AND to_time
        WHERE samples.time BETWEEN $from_time AND $to_time""",
)

ENERGY = Source(
    name="energy",
    # Power between two readings is taken to change evenly; the stretches that cross an end of the window are cut there.
    # Where readings are missing for more than 5 s, or for more than a fiftieth of the window, there is no figure. The
    # driver's own readings (power_samples) are preferred to the polled ones.
    relation="""
        SELECT run_id, device_id AS part, energy_joules
        FROM (
            SELECT run_id, device_id, polled, any_value(window_seconds) AS window_seconds,
                   sum(epoch(ended - began)) AS covered_seconds,
                   sum(
                       epoch(ended - began)
                       * (power_watts + slope * (epoch(began - time) + epoch(ended - time)) / 2)
                   ) AS energy_joules
            FROM (
                SELECT *, greatest(time, from_time) AS began, least(next_time, to_time) AS ended,
                       (next_watts - power_watts) / epoch(next_time - time) AS slope,
                       epoch(to_time - from_time) AS window_seconds
                FROM (
                    SELECT windows.run_id, samples.*, from_time, to_time,
                           lead(samples.time) OVER neighbours AS next_time,
                           lead(power_watts) OVER neighbours AS next_watts
                    FROM (
                        SELECT node_id, device_id, time, power_watts, false AS polled FROM power_samples
                        UNION ALL
                        SELECT node_id, device_id, time, power_watts, true AS polled FROM gpu_samples
                    ) AS samples
                    JOIN run_gpus ON samples.node_id = run_gpus.node_id AND samples.device_id = run_gpus.device_id
                    JOIN windows ON windows.run_id = run_gpus.run_id AND windows.node_id = samples.node_id
                        AND samples.time BETWEEN from_time - INTERVAL 5 SECONDS AND to_time + INTERVAL 5 SECONDS
                    WHERE power_watts IS NOT NULL
                        AND samples.time BETWEEN CAST($from_time AS TIMESTAMP) - INTERVAL 5 SECONDS
                            AND CAST($to_time AS TIMESTAMP) + INTERVAL 5 SECONDS
                    WINDOW neighbours AS (PARTITION BY windows.run_id, samples.device_id, polled ORDER BY samples.time)
                )
                WHERE next_time > time AND next_time - time <= INTERVAL 5 SECONDS
            )
            WHERE ended > began
            GROUP BY run_id, device_id, polled
        )
        WHERE covered_seconds >= 0.98 * window_seconds
        QUALIFY row_number() OVER (PARTITION BY run_id, device_id ORDER BY polled) = 1""",
)

SOURCES: tuple[Source, ...] = (
    LIFE,
    FIRST_STEPS,
    MEASURED_STEPS,
    RESULTS,
    HOST,
    PROCESSES,
    RUN_GPUS,
    GPUS,
    GPU_PROCESSES,
    ENERGY,
)
"""Every source."""
