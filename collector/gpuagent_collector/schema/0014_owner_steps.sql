-- The steps of jobs of Slurm on each node, and what was counted of them: a row when one is found, whenever the job has a
-- row in owners, and when it ends. All counts rise, so the highest one counts.
CREATE TABLE owner_steps (
    session_id BIGINT,                    -- | the agent process | agent
    node_id BIGINT,                       -- | the node | agent
    time TIMESTAMP,                       -- UTC | when it was recorded | agent's wall clock
    owner_id BIGINT,                      -- | the job, as in owners | agent
    step VARCHAR,                         -- | its number in the job, batch, extern or interactive | /proc/PID/cgroup, SLURM_STEP_ID
    started_at TIMESTAMP,                 -- UTC | when the first of its processes that were seen began | /proc/PID/stat
    ended_at TIMESTAMP,                   -- UTC | when no process was left, up to 5 s late; NULL: it runs | agent
    observed_seconds DOUBLE,              -- s | how long this agent process has watched it | agent
    cpu_seconds DOUBLE,                   -- s | CPU time, of its group since it exists | cpu.stat, cpuacct.usage, /proc/PID/stat
    memory_max_bytes BIGINT,              -- bytes | most memory at a look every 5 s, page cache left out | memory.stat, /proc/PID/statm
    gpus_used BIGINT                      -- | GPUs that its processes were on; NULL: none are listed here | NVML
);
