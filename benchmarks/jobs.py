"""Time, memory and disk of `collector jobs` over a year with a thousand jobs a day."""

from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.compare_speed import timed
from benchmarks.figures import Figure
from gpuagent_collector.store import Store
from tests.support.servers import BIN, Node

JOBS_A_DAY, DAYS = 1000, 365
NODES, GPUS_A_NODE = 100, 8
REPEATS = 5

MOST_SECONDS, MOST_BYTES = 1.0, 200e6


def measure(_node: Node | None = None) -> Iterator[Figure]:
    """Yield the bytes of a year's jobs, and the wall time and peak memory of the lists of them."""
    with TemporaryDirectory(prefix="gpuagent-bench-jobs-") as folder:
        store = Path(folder) / "runs.duckdb"
        fill(str(store))
        note = f"{JOBS_A_DAY * DAYS:,} jobs on {NODES} nodes with {GPUS_A_NODE} GPUs each"
        yield Figure(name="jobs of a year", unit="bytes", values=[store.stat().st_size], note=note, goal=MOST_BYTES)
        for words in (["jobs", "--since", "30d"], ["jobs"], ["job", "200000"]):
            taken = [timed([str(BIN / "collector"), *words, "--store", str(store)]) for _ in range(REPEATS)]
            name = f"`collector {' '.join(words)}`"
            goal = MOST_SECONDS if "--since" in words else None
            yield Figure(name=name, unit="s", values=[seconds for seconds, _ in taken], goal=goal)
            yield Figure(name=f"{name}: memory", unit="MiB RSS", values=[memory for _, memory in taken])


def fill(store: str) -> None:
    """Put the states of all jobs into a store, in the order of time, and fold them as a collector does."""
    with Store.open(store) as opened, opened.connect() as connection:
        for statement in _LIVES:
            connection.execute(statement)
        for first in range(0, DAYS * JOBS_A_DAY, 10 * JOBS_A_DAY):
            connection.execute(_STATES, [first, first + 10 * JOBS_A_DAY])
            opened.tidy()
            opened.checkpoint()


_LIVES = (
    f"""
    INSERT INTO sessions BY NAME
    SELECT node AS session_id, node AS node_id, 'node-' || node AS hostname, 'hpc' AS platform,
           TIMESTAMP '2025-01-01' AS started_at, '{{}}' AS labels, 64 AS cpu_threads, {GPUS_A_NODE} AS gpu_count
    FROM range({NODES}) AS nodes(node)""",
    # Half of the jobs take less than an hour, and one in a hundred more than a day; every second one has 1 to 4 GPUs.
    f"""
    CREATE TEMP TABLE lives AS
    SELECT
        number, hash(number, 'owner')::HUGEINT - 9223372036854775808 AS owner_id, hash(number, 1) % {NODES} AS node,
        hash(number, 2) % 100 AS who, hash(number, 3) % 1000 AS what,
        if(number % 2 = 0, 1 + hash(number, 4) % 4, 0) AS gpus,
        TIMESTAMP '2025-01-01' + to_microseconds(number * 86400000000 // {JOBS_A_DAY}) AS started_at,
        3600 * exp(1.4 * sqrt(-2 * ln((1 + hash(number, 5) % 9999) / 10000)) * cos(hash(number, 6) % 628 / 100))
            AS seconds
    FROM range({JOBS_A_DAY * DAYS}) AS numbers(number)""",
)

# A state when a job is found, after a minute, when its age has become three times as much, and when it ends.
_STATES = f"""
    INSERT INTO owners BY NAME
    SELECT
        node AS session_id, node AS node_id, started_at + to_microseconds((age * 1e6)::BIGINT) AS time,
        owner_id::BIGINT AS owner_id, 'slurm' AS kind, number::VARCHAR AS job, number::VARCHAR AS number,
        if(device = 0, NULL, node * {GPUS_A_NODE} + (number + device) % {GPUS_A_NODE}) AS device_id,
        'train-' || what AS title, 'user-' || who AS user_name, 'project-' || who % 20 AS account, 'gpu' AS place,
        '["python", "train.py", "--config", "configs/' || what || '.yaml"]' AS command,
        8.0 * greatest(gpus, 1) AS held_cores, 64000000000 AS memory_held_bytes, started_at,
        if(age = seconds, started_at + to_microseconds((age * 1e6)::BIGINT), NULL) AS ended_at,
        age AS observed_seconds, if(device = 0, age * (1 + hash(number, 7) % 800 / 100), NULL) AS cpu_seconds,
        if(device = 0, hash(number, age) % 64000000000, NULL) AS memory_max_bytes,
        if(device > 0 OR gpus > 0, 1, 0) AS is_held,
        if(device > 0, hash(number, 8) % 80000 * 1000000, NULL) AS gpu_memory_max_bytes,
        if(device > 0, age * (hash(number, 9) % 1000) / 1000, NULL) AS gpu_seconds,
        if(device > 0, age * (100 + hash(number, 10) % 500), NULL) AS energy_joules,
        if(device > 0, greatest(age - 900, 0) * (hash(number, 11) % 10 = 0)::BIGINT, NULL) AS idle_seconds
    FROM lives, range(5) AS devices(device),
        unnest(list_filter([0, 60, 180, 540, 1620, 4860, 14580, 43740, 131220, seconds], age -> age <= seconds))
            AS ages(age)
    WHERE device <= gpus AND number >= ? AND number < ?
    ORDER BY time"""
