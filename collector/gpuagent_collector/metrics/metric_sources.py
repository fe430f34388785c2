"""Sources of a run's figures: its own rows of each table, in the time that counts."""

from dataclasses import dataclass

from gpuagent_collector.choices import PartKind


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """A source of readings.

    `relation` is a SELECT over the tables of the store and those of `run_windows`: `windows` (run_id, node_id,
    from_time, to_time, measured: the time in which a run counts on each of its nodes), `session_windows` (the same by
    session_id, by which samples are joined: two machines may have one identity), `run_sessions` (run_id, session_id,
    node_id), `lives` (run_id, started_at, ended_at) and `run_gpus` (run_id, node_id, device_id). It gives `run_id`,
    `part` and the columns that metrics use. $from_time and $to_time enclose all windows, $life_from and $life_to all
    lives, so that old rows are never read. $computed_at selects the rows of run_energy that were computed for this
    summary. `tables` names those that it reads, for people. `part_kind` is the kind of its parts; None: they are of no
    interest. `needs` are relations: if one of them has no rows, the source has none, and is skipped.
    """

    name: str
    tables: str
    relation: str
    part_kind: PartKind | None = None
    needs: tuple[str, ...] = ()


_IN_LIFE = "WHERE time BETWEEN $life_from AND $life_to"
_IN_WINDOW = "WHERE time BETWEEN $from_time AND $to_time"
_GPU_SAMPLES = f"gpu_samples {_IN_LIFE}"
_RESULTS = f"results {_IN_LIFE}"
_STEPS = f"steps {_IN_LIFE} AND phase = 'measure'"
_ENERGIES = "run_energy WHERE computed_at = $computed_at"


LIFE = Source(
    name="life",
    tables="runs, run_events",
    part_kind=PartKind.NODE,
    relation="""
        SELECT lives.run_id, windows.node_id AS part, lives.started_at, lives.ended_at,
               CASE WHEN windows.measured THEN windows.from_time END AS measure_from, windows.to_time AS measure_to
        FROM lives JOIN windows USING (run_id)""",
)
STARTS = Source(
    name="starts",
    tables="run_events",
    # The start of a run's launch, if it was reported: until then it waits for the runs beside it.
    needs=(f"run_events {_IN_LIFE}",),
    relation="""
        SELECT run_id, any_value(lives.node_id) AS part,
               coalesce(min(time) FILTER (event = 'start' AND name = 'launch'), any_value(started_at)) AS launched_at,
               min(time) FILTER (event = 'start' AND name = 'process') AS process_at,
               min(time) FILTER (event = 'phase') AS reported_at
        FROM run_events JOIN lives USING (run_id)
        WHERE event IN ('start', 'phase') AND time BETWEEN $life_from AND $life_to
        GROUP BY run_id""",
)
FIRST_STEPS = Source(
    name="first_steps",
    tables="steps, run_events",
    part_kind=PartKind.RANK,
    needs=(f"steps {_IN_LIFE}",),
    relation=f"""
        SELECT run_id, rank AS part, steps.time, coalesce(launched_at, lives.started_at) AS launched_at
        FROM steps JOIN lives USING (run_id) LEFT JOIN ({STARTS.relation}) AS starts USING (run_id)
        WHERE steps.time BETWEEN $life_from AND $life_to""",  # noqa: S608 - of ours
)
IMAGES = Source(
    name="images",
    tables="images",
    part_kind=PartKind.NODE,
    needs=("images",),
    relation="""
        SELECT run_id, images.node_id AS part, size_bytes, layers, build_seconds, push_seconds, pull_seconds
        FROM images JOIN lives USING (run_id)""",
)
# With a GPU, the wall time of a step may be that of its launch alone, which runs ahead of the GPU in bursts.
MEASURED_STEPS = Source(
    name="measured_steps",
    tables="steps",
    part_kind=PartKind.RANK,
    needs=(_STEPS,),
    relation="""
        SELECT run_id, rank AS part, coalesce(gpu_seconds, wall_seconds) AS seconds
        FROM steps JOIN lives USING (run_id)
        WHERE phase = 'measure' AND steps.time BETWEEN $life_from AND $life_to""",
)
# The steady part of at least 50 measured steps, by MSER-5 (White 1997): of the means of five steps each, up to half are
# left out, so many that the squared standard error of the rest is least.
STEADY_STEPS = Source(
    name="steady_steps",
    tables="steps",
    part_kind=PartKind.RANK,
    needs=(_STEPS,),
    relation="""
        SELECT run_id, part, 5 * batch AS steps_before, rest_items / rest_seconds AS items_per_second,
               all_items / all_seconds AS timed_items_per_second
        FROM (
            SELECT *, sum(squares) OVER rest AS rest_squares, sum(level) OVER rest AS rest_level,
                   sum(items) OVER rest AS rest_items, sum(seconds) OVER rest AS rest_seconds,
                   count(*) OVER rest AS left_over
            FROM (
                SELECT *, mean - avg(mean) OVER run AS level, (mean - avg(mean) OVER run) ** 2 AS squares,
                       count(*) OVER run AS batches, sum(items) OVER run AS all_items,
                       sum(seconds) OVER run AS all_seconds
                FROM (
                    SELECT run_id, part, number // 5 AS batch, avg(seconds) AS mean, sum(seconds) AS seconds,
                           sum(items) AS items
                    FROM (
                        SELECT run_id, rank AS part, coalesce(gpu_seconds, wall_seconds) AS seconds, items,
                               row_number() OVER (PARTITION BY run_id, rank ORDER BY steps.time, step) - 1 AS number
                        FROM steps JOIN lives USING (run_id)
                        WHERE phase = 'measure' AND steps.time BETWEEN $life_from AND $life_to
                    )
                    GROUP BY ALL HAVING count(seconds) = 5
                )
                WINDOW run AS (PARTITION BY run_id, part)
            )
            WINDOW rest AS (PARTITION BY run_id, part ORDER BY batch DESC)
        )
        WHERE batches >= 10 AND batch <= batches / 2
        -- Rounded: of equal steps, the first truncation.
        QUALIFY row_number() OVER (
            PARTITION BY run_id, part
            ORDER BY round((rest_squares - rest_level ** 2 / left_over) / left_over ** 2, 18), batch
        ) = 1""",
)
# A result without a phase describes the whole run. It stands for the measured phase where that has none of that name.
RESULTS = Source(
    name="results",
    tables="results",
    part_kind=PartKind.RANK,
    needs=(_RESULTS,),
    relation="""
        SELECT run_id, rank AS part, results.time, name, phase, value, unit,
               phase = 'measure' OR phase IS NULL AND NOT coalesce(
                   bool_or(phase = 'measure') OVER (PARTITION BY run_id, rank, name), false
               ) AS is_measured
        FROM results JOIN lives USING (run_id)
        WHERE results.time BETWEEN $life_from AND $life_to""",
)
RATES = Source(
    name="rates",
    tables="results, run_devices",
    needs=("run_gpus", _RESULTS),
    relation=f"""
        SELECT run_id, part, time, value AS throughput, gpus
        FROM ({RESULTS.relation})
        JOIN (SELECT run_id, count(DISTINCT device_id) AS gpus FROM run_gpus GROUP BY run_id) USING (run_id)
        WHERE name = 'throughput' AND is_measured""",  # noqa: S608 - of ours
)
HOST = Source(
    name="host",
    tables="host_samples, sessions",
    part_kind=PartKind.NODE,
    needs=(f"host_samples {_IN_WINDOW}",),
    relation="""
        SELECT windows.run_id, samples.node_id AS part, samples.*, sessions.cpu_threads
        FROM host_samples AS samples
        JOIN session_windows AS windows ON samples.session_id = windows.session_id
            AND samples.time BETWEEN from_time AND to_time
        LEFT JOIN (  -- a session can be described twice
            SELECT session_id, max(cpu_threads) AS cpu_threads FROM sessions GROUP BY session_id
        ) AS sessions ON sessions.session_id = samples.session_id
        WHERE samples.time BETWEEN $from_time AND $to_time""",
)


def _own_samples(name: str, table: str) -> Source:
    """Return the readings of a table whose rows name their run."""
    return Source(
        name=name,
        tables=table,
        part_kind=PartKind.NODE,
        needs=(f"{table} {_IN_WINDOW}",),
        relation=f"""
        SELECT samples.*, samples.node_id AS part
        FROM {table} AS samples
        JOIN windows ON samples.run_id = windows.run_id AND samples.node_id = windows.node_id
            AND samples.time BETWEEN from_time AND to_time
        WHERE samples.time BETWEEN $from_time AND $to_time""",  # noqa: S608 - of ours
    )


PROCESSES = _own_samples("processes", "process_samples")
CGROUPS = _own_samples("cgroups", "cgroup_samples")
WORK_RATES = Source(
    name="work_rates",
    tables="results, steps",
    part_kind=PartKind.RANK,
    # Work of a step by the mean time of a measured step: by CUDA events where the workload has them.
    needs=(_RESULTS, _STEPS),
    relation="""
        SELECT run_id, part, model_flops / seconds AS model_flops_per_second,
               executed_flops / seconds AS executed_flops_per_second,
               dram_bytes / seconds AS dram_bytes_per_second
        FROM (
            SELECT run_id, rank AS part, nullif(avg(coalesce(gpu_seconds, wall_seconds)), 0) AS seconds
            FROM steps JOIN lives USING (run_id)
            WHERE phase = 'measure' AND steps.time BETWEEN $life_from AND $life_to
            GROUP BY run_id, rank
        ) JOIN (
            SELECT run_id, rank AS part,
                   arg_max(value, results.time) FILTER (name = 'model_flops_per_step') AS model_flops,
                   arg_max(value, results.time) FILTER (name = 'executed_flops_per_step') AS executed_flops,
                   arg_max(value, results.time) FILTER (name = 'dram_bytes_per_step') AS dram_bytes
            FROM results JOIN lives USING (run_id)
            WHERE results.time BETWEEN $life_from AND $life_to
            GROUP BY run_id, rank
        ) USING (run_id, part)""",
)
OPERATIONS = Source(
    name="operations",
    tables="op_times",
    part_kind=PartKind.RANK,
    # All rows of a rank are of the same traced steps.
    needs=(f"op_times {_IN_LIFE}",),
    relation="""
        SELECT run_id, rank AS part, sum(gpu_seconds) FILTER (kind = 'kernel') / max(steps) AS kernel_seconds,
               sum(cpu_self_seconds) FILTER (kind = 'operator') / max(steps) AS operator_seconds
        FROM op_times JOIN lives USING (run_id)
        WHERE op_times.time BETWEEN $life_from AND $life_to
        GROUP BY run_id, rank""",
)
GPUS = Source(
    name="gpus",
    tables="gpu_samples, session_devices, results",
    part_kind=PartKind.GPU,
    needs=("run_gpus", _GPU_SAMPLES),
    relation="""
        SELECT windows.run_id, samples.device_id AS part, samples.*, sm_clock_max_mhz,
               peaks.dram_bytes_per_second AS dram_peak_bytes_per_second
        FROM gpu_samples AS samples
        JOIN run_gpus ON samples.node_id = run_gpus.node_id AND samples.device_id = run_gpus.device_id
        JOIN session_windows AS windows ON windows.run_id = run_gpus.run_id AND windows.session_id = samples.session_id
            AND samples.time BETWEEN from_time AND to_time
        LEFT JOIN (
            SELECT session_id, device_id, max(sm_clock_max_mhz) AS sm_clock_max_mhz
            FROM session_devices GROUP BY session_id, device_id
        ) AS known ON samples.session_id = known.session_id AND samples.device_id = known.device_id
        LEFT JOIN (
            SELECT run_id, max(value) AS dram_bytes_per_second
            FROM results JOIN lives USING (run_id)
            WHERE name = 'datasheet_dram_bytes_per_second' AND results.time BETWEEN $life_from AND $life_to
            GROUP BY run_id
        ) AS peaks ON peaks.run_id = windows.run_id
        WHERE samples.time BETWEEN $from_time AND $to_time""",
)
HEALTH = Source(
    name="health",
    tables="gpu_health_samples",
    part_kind=PartKind.GPU,
    # Read every 10 s: readings just before or after a short run count too. The health of a MIG instance is its GPU's.
    needs=("run_gpus", f"gpu_health_samples {_IN_LIFE}"),
    relation="""
        SELECT boards.run_id, samples.device_id AS part, samples.*
        FROM gpu_health_samples AS samples
        JOIN (
            SELECT DISTINCT run_id, run_gpus.node_id, coalesce(parent_device_id, device_id) AS device_id
            FROM run_gpus LEFT JOIN session_devices USING (node_id, device_id)
        ) AS boards ON samples.node_id = boards.node_id AND samples.device_id = boards.device_id
        JOIN run_sessions ON run_sessions.run_id = boards.run_id AND run_sessions.session_id = samples.session_id
        JOIN lives ON lives.run_id = boards.run_id
            AND samples.time BETWEEN started_at - INTERVAL 30 SECONDS AND ended_at + INTERVAL 30 SECONDS
        WHERE samples.time BETWEEN $life_from AND $life_to""",
)
RUN_GPUS = Source(
    name="run_gpus",
    tables="run_devices",
    needs=("run_gpus",),
    relation="SELECT run_id, node_id AS part, device_id FROM run_gpus",
)


def _holders(before_seconds: int) -> str:
    """Return SQL of what was seen of each GPU's processes in a run's window, and so long before.

    Another agent of the node does not know the run: its processes are those that the run's agent named, or of the pod
    that measures itself.
    """
    before = f"INTERVAL {before_seconds} SECONDS"
    return f"""
            SELECT windows.run_id, seen.device_id AS part, seen.time, windows.from_time AS window_from, holders.pid,
                   holders.memory_used_bytes, holders.utilization_percent,
                   holders.pid IS NOT NULL AND holders.run_id IS DISTINCT FROM windows.run_id
                       AND own_pods.run_id IS NULL AND own.pid IS NULL AS is_other
            FROM gpu_samples AS seen
            JOIN run_gpus ON seen.node_id = run_gpus.node_id AND seen.device_id = run_gpus.device_id
            JOIN session_windows AS windows ON windows.run_id = run_gpus.run_id
                AND windows.session_id = seen.session_id AND seen.time BETWEEN from_time - {before} AND to_time
            LEFT JOIN gpu_process_samples AS holders
                ON seen.session_id = holders.session_id AND seen.device_id = holders.device_id
                AND seen.time = holders.time
                AND holders.time BETWEEN CAST($from_time AS TIMESTAMP) - {before} AND $to_time
            LEFT JOIN (
                SELECT DISTINCT run_id, sessions.labels ->> 'pod_uid' AS pod_uid
                FROM lives JOIN run_requests USING (run_id) JOIN sessions USING (session_id)
            ) AS own_pods ON own_pods.run_id = windows.run_id AND own_pods.pod_uid = holders.pod_uid
            LEFT JOIN (
                SELECT DISTINCT run_id, known.node_id, pid
                FROM gpu_process_samples AS known JOIN lives USING (run_id)
                WHERE time BETWEEN $life_from AND $life_to
            ) AS own ON own.run_id = windows.run_id AND own.node_id = seen.node_id AND own.pid = holders.pid
            WHERE seen.process_count IS NOT NULL
                AND seen.time BETWEEN CAST($from_time AS TIMESTAMP) - {before} AND $to_time"""  # noqa: S608 - of ours


GPU_HOLDERS = Source(
    name="gpu_holders",
    tables="gpu_process_samples, gpu_samples",
    part_kind=PartKind.GPU,
    # One row each time that all processes on a GPU were seen: the use by those of others.
    needs=("run_gpus", f"{_GPU_SAMPLES} AND process_count IS NOT NULL"),
    relation=f"""
        SELECT run_id, part, count(pid) FILTER (is_other) AS other_processes,
               CASE WHEN count(*) FILTER (is_other AND memory_used_bytes IS NULL) = 0
                    THEN coalesce(sum(memory_used_bytes) FILTER (is_other), 0) END AS other_memory_bytes,
               -- The driver reports utilisation by process less often: polls in between have none. Each report is of
               -- the time since the one before, so that the first one is also of time before the window.
               CASE WHEN count(pid) = count(utilization_percent)
                        AND count(CASE WHEN count(pid) = count(utilization_percent) THEN 1 END)
                            OVER (PARTITION BY run_id, part ORDER BY time) > 1
                    THEN coalesce(sum(utilization_percent) FILTER (is_other), 0) END AS other_utilization_percent
        FROM ({_holders(0)}
        )
        GROUP BY run_id, part, time""",  # noqa: S608 - of ours
)
SHARED_ENERGY = Source(
    name="shared_energy",
    tables="run_energy, gpu_process_samples, gpu_samples, session_devices",
    part_kind=PartKind.GPU,
    # A run's share of the energy of its GPUs, where others were on one of them. While processes take turns, a GPU draws
    # no more than its limit in the time of each: what others cannot have drawn is the run's, and the power of the idle
    # GPU is anybody's. Where utilisation by process is unknown, all or nothing may be the run's.
    needs=(_ENERGIES, "run_gpus", f"{_GPU_SAMPLES} AND process_count > 1"),
    relation=f"""
        WITH looks AS (  -- the driver reports utilisation by process every 5 s, of the time since the report before
            SELECT run_id, part, time, any_value(window_from) AS window_from, count(pid) FILTER (is_other) AS others,
                   count(pid) = count(utilization_percent) AS reported,
                   coalesce(sum(utilization_percent) FILTER (NOT is_other), 0) / 100 AS own_share,
                   coalesce(sum(utilization_percent) FILTER (is_other), 0) / 100 AS other_share,
                   sum(count(pid) FILTER (is_other)) OVER (PARTITION BY run_id, part ORDER BY time) AS others_until
            FROM ({_holders(15)}
            )
            GROUP BY run_id, part, time
        ),
        shared_runs AS (SELECT DISTINCT run_id FROM looks WHERE others > 0 AND time >= window_from),
        reports AS (  -- a process that ended since the report before has no use in this one
            SELECT *, greatest(lag(time) OVER each, window_from) AS from_time,
                   others_until > coalesce(lag(others_until - others) OVER each, 0) AS shared,
                   others = 0 OR others < lag(others) OVER each AS lacks_others
            FROM looks SEMI JOIN shared_runs USING (run_id) WHERE reported
            WINDOW each AS (PARTITION BY run_id, part ORDER BY time)
        ),
        powers AS (  -- of the idle GPU too: from a minute before the run to a minute after
            SELECT lives.run_id, samples.device_id AS part, samples.time, power_watts
            FROM gpu_samples AS samples
            JOIN run_gpus ON samples.node_id = run_gpus.node_id AND samples.device_id = run_gpus.device_id
            JOIN run_sessions ON run_sessions.run_id = run_gpus.run_id AND run_sessions.session_id = samples.session_id
            JOIN lives ON lives.run_id = run_gpus.run_id
                AND samples.time BETWEEN started_at - INTERVAL 1 MINUTE AND ended_at + INTERVAL 1 MINUTE
            SEMI JOIN shared_runs ON shared_runs.run_id = run_gpus.run_id
            WHERE power_watts IS NOT NULL AND samples.time BETWEEN $life_from AND $life_to
        ),
        ranges AS (
            SELECT run_id, part, min(power_watts) AS idle_watts,
                   greatest(max(power_watts), coalesce(any_value(limit_watts), 1e9)) - min(power_watts) AS room_watts
            FROM powers
            LEFT JOIN (
                SELECT device_id AS part, max(power_limit_watts) AS limit_watts FROM session_devices GROUP BY device_id
            ) USING (part)
            GROUP BY run_id, part
        ),
        reported AS (  -- each power with the next report: a join by `<=` would take the square of a run's length
            SELECT run_id, part, time AS power_time, power_watts, min(report_time) OVER (
                       PARTITION BY run_id, part ORDER BY time RANGE BETWEEN CURRENT ROW AND UNBOUNDED FOLLOWING
                   ) AS time
            FROM (
                SELECT run_id, part, time, power_watts, NULL AS report_time FROM powers
                UNION ALL
                SELECT run_id, part, time, NULL, time FROM reports
            )
        ),
        intervals AS (
            SELECT run_id, part, time, epoch(time - from_time) AS seconds, shared, others, lacks_others, own_share,
                   other_share, avg(power_watts) AS watts
            FROM reported JOIN reports USING (run_id, part, time)
            WHERE power_watts IS NOT NULL AND power_time > from_time
            GROUP BY ALL
        ),
        known AS (
            SELECT run_id, part, sum(seconds) AS seconds, sum(watts * seconds) AS joules,
                   sum(seconds * CASE WHEN NOT shared THEN watts
                       WHEN own_share + other_share > 0 THEN watts * own_share / (own_share + other_share)
                       ELSE watts / (1 + others) END) AS own_joules,
                   sum(seconds * CASE WHEN NOT shared THEN watts ELSE greatest(0, least(
                       own_share * room_watts,
                       watts - idle_watts - room_watts * CASE WHEN lacks_others THEN 1 - own_share ELSE other_share END
                   )) END) AS least_joules,
                   sum(seconds * CASE WHEN NOT shared THEN watts
                       ELSE least(watts, idle_watts + own_share * room_watts) END) AS most_joules
            FROM intervals JOIN ranges USING (run_id, part) GROUP BY run_id, part
        ),
        spans AS (
            SELECT run_id, device_id AS part, any_value(energy_joules) AS joules, any_value(seconds) AS seconds
            FROM run_energy JOIN windows USING (run_id, node_id)
            WHERE computed_at = $computed_at AND step IS NULL
                AND phase IS NOT DISTINCT FROM CASE WHEN measured THEN 'measure' END
            GROUP BY run_id, device_id
        ),
        shares AS (
            SELECT run_id, part, spans.joules, coalesce(least(1, known.seconds / spans.seconds), 0) AS covered,
                   own_joules / known.joules AS own, coalesce(least_joules / known.joules, 0) AS least,
                   coalesce(most_joules / known.joules, 1) AS most
            FROM spans LEFT JOIN known USING (run_id, part)
        )
        SELECT run_id, part, joules * covered * least AS least_joules,
               joules * (1 - covered * (1 - most)) AS most_joules,
               CASE WHEN min(CASE WHEN own IS NULL THEN 0 ELSE covered END) OVER (PARTITION BY run_id) >= 0.8
                    THEN joules * own END AS own_joules
        FROM shares
        SEMI JOIN shared_runs USING (run_id)
        JOIN (SELECT run_id, count(*) AS gpus FROM run_gpus GROUP BY run_id) USING (run_id)
        QUALIFY count(*) OVER (PARTITION BY run_id) = any_value(gpus) OVER (PARTITION BY run_id)""",  # noqa: S608 - of ours
)
HELD_GPUS = Source(
    name="held_gpus",
    tables="gpu_process_samples, gpu_samples",
    part_kind=PartKind.GPU,
    # From the first to the last time that a process of the run was seen on the GPU.
    needs=(f"gpu_process_samples {_IN_LIFE}",),
    relation="""
        SELECT held.run_id, samples.device_id AS part, samples.utilization_percent
        FROM gpu_samples AS samples
        JOIN (
            SELECT run_id, gpu_process_samples.node_id, device_id, min(time) AS from_time, max(time) AS to_time
            FROM gpu_process_samples JOIN lives USING (run_id)
            WHERE time BETWEEN $life_from AND $life_to GROUP BY ALL
        ) AS held ON samples.node_id = held.node_id AND samples.device_id = held.device_id
            AND samples.time BETWEEN held.from_time AND held.to_time
        JOIN run_sessions ON run_sessions.run_id = held.run_id AND run_sessions.session_id = samples.session_id
        WHERE samples.time BETWEEN $life_from AND $life_to""",
)
CPU_ENERGY = Source(
    name="cpu_energy",
    tables="host_samples",
    part_kind=PartKind.NODE,
    # A sample has the mean power since the one before. For all nodes of the run or not at all, and only where at most a
    # fiftieth of the window is not covered.
    needs=(f"host_samples {_IN_LIFE} AND cpu_power_watts IS NOT NULL",),
    relation="""
        SELECT run_id, node_id AS part, energy_joules
        FROM (
            SELECT run_id, node_id, any_value(nodes) AS nodes, sum(cpu_power_watts * seconds) AS energy_joules,
                   sum(seconds) / any_value(window_seconds) AS covered
            FROM (
                SELECT run_id, node_id, nodes, cpu_power_watts, epoch(to_time - from_time) AS window_seconds,
                       epoch(least(time, to_time) - greatest(before, from_time)) AS seconds
                FROM (
                    SELECT windows.*, time, cpu_power_watts,
                           lag(time) OVER (PARTITION BY run_id, windows.node_id ORDER BY time) AS before
                    FROM host_samples JOIN session_windows AS windows USING (session_id)
                    WHERE cpu_power_watts IS NOT NULL
                        AND time BETWEEN CAST($from_time AS TIMESTAMP) - INTERVAL 5 SECONDS
                            AND CAST($to_time AS TIMESTAMP) + INTERVAL 5 SECONDS
                        AND time BETWEEN from_time - INTERVAL 5 SECONDS AND to_time + INTERVAL 5 SECONDS
                )
                JOIN (SELECT run_id, count(*) AS nodes FROM windows GROUP BY run_id) USING (run_id)
                WHERE time > from_time AND before < to_time AND time - before <= INTERVAL 5 SECONDS
            )
            GROUP BY run_id, node_id
        )
        WHERE covered >= 0.98
        QUALIFY count(*) OVER (PARTITION BY run_id) = nodes""",
)

ENERGY = Source(
    name="energy",
    tables="run_energy, steps, results",
    # For all GPUs of the run or not at all. Where a node reported no measured phase, its whole run counts. Items are
    # those of the steps; a run without any, such as of a server, has those of its throughput.
    needs=(_ENERGIES,),
    relation="""
        SELECT run_id, 0 AS part, CASE WHEN bool_and(measured) THEN any_value(items) END AS items,
               CASE WHEN count(counted_joules) = any_value(gpus) THEN sum(counted_joules) END AS counted_joules,
               CASE WHEN count(run_joules) = any_value(gpus) THEN sum(run_joules) END AS run_joules
        FROM (
            SELECT run_id, gpus, measured,
                   CASE WHEN steps IS NULL THEN throughput * epoch(to_time - from_time) ELSE items END AS items,
                   CASE WHEN phase IS NULL THEN energy_joules END AS run_joules,
                   CASE WHEN phase IS NOT DISTINCT FROM CASE WHEN measured THEN 'measure' END
                        THEN energy_joules END AS counted_joules
            FROM run_energy
            JOIN windows USING (run_id, node_id)
            JOIN (SELECT run_id, count(*) AS gpus FROM run_gpus GROUP BY run_id) USING (run_id)
            LEFT JOIN (
                SELECT run_id, sum(steps) AS steps, CASE WHEN count(*) = count(items) THEN sum(items) END AS items
                FROM (
                    -- The row of a printed line may stand for many steps; their number is a result.
                    SELECT run_id, rank, count(*) AS steps,
                           CASE WHEN count(*) = count(items) THEN sum(items) END
                           * greatest(1, coalesce(any_value(counted) / nullif(count(wall_seconds), 0), 1)) AS items
                    FROM steps JOIN lives USING (run_id)
                    LEFT JOIN (
                        SELECT run_id, rank, arg_max(value, results.time) AS counted
                        FROM results JOIN lives USING (run_id)
                        WHERE name = 'steps' AND phase = 'measure' AND results.time BETWEEN $life_from AND $life_to
                        GROUP BY run_id, rank
                    ) USING (run_id, rank)
                    WHERE phase = 'measure' AND steps.time BETWEEN $life_from AND $life_to
                    GROUP BY run_id, rank
                )
                GROUP BY run_id
            ) USING (run_id)
            LEFT JOIN (
                SELECT run_id, sum(value) AS throughput
                FROM (
                    SELECT run_id, rank, arg_max(value, results.time) AS value FROM results JOIN lives USING (run_id)
                    WHERE name = 'throughput' AND phase = 'measure' AND results.time BETWEEN $life_from AND $life_to
                    GROUP BY run_id, rank
                )
                GROUP BY run_id
            ) USING (run_id)
            WHERE computed_at = $computed_at AND step IS NULL
        )
        GROUP BY run_id""",
)
STEP_ENERGY = Source(
    name="step_energy",
    tables="run_energy",
    part_kind=PartKind.GPU,
    needs=(f"{_ENERGIES} AND step IS NOT NULL",),
    relation="""
        SELECT run_id, device_id AS part, energy_joules
        FROM run_energy
        JOIN (SELECT run_id, count(*) AS gpus FROM run_gpus GROUP BY run_id) USING (run_id)
        WHERE computed_at = $computed_at AND step IS NOT NULL
        QUALIFY count(DISTINCT device_id) OVER (PARTITION BY run_id) = gpus""",
)

# Every source.
SOURCES: tuple[Source, ...] = (
    LIFE,
    STARTS,
    FIRST_STEPS,
    IMAGES,
    MEASURED_STEPS,
    STEADY_STEPS,
    RESULTS,
    RATES,
    HOST,
    PROCESSES,
    CGROUPS,
    WORK_RATES,
    OPERATIONS,
    RUN_GPUS,
    GPUS,
    HEALTH,
    GPU_HOLDERS,
    HELD_GPUS,
    CPU_ENERGY,
    ENERGY,
    STEP_ENERGY,
    SHARED_ENERGY,
)
