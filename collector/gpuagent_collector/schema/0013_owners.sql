-- The owners of work on each node, and what was counted of them: a row when one is found, after a minute, when its age
-- has become three times as much, and when it or the agent ends. All counts rise, so the highest one counts.
CREATE TABLE owners (
    session_id BIGINT,                    -- | the agent process | agent
    node_id BIGINT,                       -- | the node | agent
    time TIMESTAMP,                       -- UTC | when it was recorded | agent's wall clock
    owner_id BIGINT,                      -- | key of one life of a job, pod, container, unit or user on one node | agent
    device_id BIGINT,                     -- | the GPU that the row is of; NULL: the owner itself | agent
    kind VARCHAR,                         -- | slurm, pod, docker, podman, container, session, unit or user | /proc/PID/cgroup, environ
    job VARCHAR,                          -- | what people call it: 4711, of an array 4711_3, NAMESPACE/POD, a container's ID, systemd's name, a user's number | agent
    number VARCHAR,                       -- | Slurm's own number of a job, also within an array; NULL: no job of Slurm | /proc/PID/cgroup, environ
    title VARCHAR,                        -- | the job's name; NULL: has none, not visible, or switched off | SLURM_JOB_NAME
    user_name VARCHAR,                    -- | its user; the number where the node has no name, or names are switched off | /proc/PID, SLURM_JOB_USER
    account VARCHAR,                      -- | the account or project that pays; NULL as title | SLURM_JOB_ACCOUNT
    place VARCHAR,                        -- | Slurm's partition, or the namespace of a pod; NULL as title | SLURM_JOB_PARTITION, /var/log/pods
    command JSON,                         -- | the first program that was seen, on a GPU if any is, without secrets, an array; NULL as title | /proc/PID/cmdline
    held_cores DOUBLE,                     -- cores | CPUs that it was given on this node; NULL: no limit is visible | SLURM_CPUS_ON_NODE, control group
    memory_held_bytes BIGINT,             -- bytes | memory that it was given on this node; NULL: no limit is visible | SLURM_MEM_PER_NODE, control group
    started_at TIMESTAMP,                 -- UTC | when the first of its processes that were seen began | /proc/PID/stat
    ended_at TIMESTAMP,                   -- UTC | when no process was left, up to 5 s late; NULL: it runs | agent
    observed_seconds DOUBLE,              -- s | how long this agent process has watched it | agent
    cpu_seconds DOUBLE,                   -- s | CPU time, of its group since it exists | cpu.stat, cpuacct.usage, /proc/PID/stat
    memory_max_bytes BIGINT,              -- bytes | most memory at a look every 5 s, page cache left out | memory.stat, /proc/PID/statm
    is_held BIGINT,                       -- | of a GPU: 1 it is allocated to the owner, 0 it is only used; of the owner itself: 1 GPUs are allocated, 0 none are; NULL: nothing says | SLURM_JOB_GPUS, NVIDIA_VISIBLE_DEVICES
    gpu_memory_max_bytes BIGINT,          -- bytes | of a GPU: most device memory at a look every 5 s | NVML
    gpu_seconds DOUBLE,                   -- s | of a GPU: time in which its kernels ran; NULL: the driver does not say | NVML process utilisation
    energy_joules DOUBLE,                 -- J | of a GPU: energy of the whole board while no other process had a part of it; NULL: shared, or not measured | NVML energy counter
    idle_seconds DOUBLE                   -- s | of a GPU: time in which it was held and idle (no kernel for 15 min; for 60 min while the job's CPUs work and none of its GPUs does) | agent
);

-- Each owner and its GPUs every 5 s.
CREATE TABLE owner_samples (
    session_id BIGINT,                    -- | the agent process | agent
    node_id BIGINT,                       -- | the node | agent
    time TIMESTAMP,                       -- UTC | when it was read | agent's wall clock
    owner_id BIGINT,                      -- | the owner | agent
    device_id BIGINT,                     -- | the GPU; NULL: the owner itself | agent
    cpu_seconds DOUBLE,                   -- s | as in owners, so far | as in owners
    memory_used_bytes BIGINT,             -- bytes | memory, page cache left out | memory.stat, /proc/PID/statm
    gpu_memory_used_bytes BIGINT,         -- bytes | device memory | NVML
    sm_percent DOUBLE,                    -- % of time | time in which its kernels ran, in the driver's last period | NVML process utilisation
    gpu_seconds DOUBLE,                   -- s | as in owners, so far | as in owners
    energy_joules DOUBLE,                 -- J | as in owners, so far | as in owners
    idle_seconds DOUBLE,                  -- s | as in owners, so far | agent
    idle_now_seconds DOUBLE               -- s | held and idle for so long; 0: it is not idle | agent
);

-- owner_samples, thinned out to one row a second or minute. A STRUCT has `mean`, `min`, `max` and `count` of the readings.
CREATE TABLE owner_rollups (
    session_id BIGINT,                    -- | the agent process | owner_samples
    node_id BIGINT,                       -- | the node | owner_samples
    time TIMESTAMP,                       -- UTC | begin of the second or minute | owner_samples
    seconds BIGINT,                       -- s | how long the row is: 1 or 60 | collector
    owner_id BIGINT,                      -- | the owner | owner_samples
    device_id BIGINT,                     -- | the GPU; NULL: the owner itself | owner_samples
    cpu_seconds DOUBLE,                   -- s | highest reading | owner_samples
    memory_used_bytes STRUCT(mean FLOAT, min BIGINT, max BIGINT, count BIGINT), -- bytes | of the readings | owner_samples
    gpu_memory_used_bytes STRUCT(mean FLOAT, min BIGINT, max BIGINT, count BIGINT), -- bytes | of the readings | owner_samples
    sm_percent STRUCT(mean FLOAT, min FLOAT, max FLOAT, count BIGINT), -- % of time | of the readings | owner_samples
    gpu_seconds DOUBLE,                   -- s | highest reading | owner_samples
    energy_joules DOUBLE,                 -- J | highest reading | owner_samples
    idle_seconds DOUBLE,                  -- s | highest reading | owner_samples
    idle_now_seconds DOUBLE               -- s | highest reading | owner_samples
);
