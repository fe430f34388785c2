-- What older samples are thinned out to: one row a second, later one a minute, instead of all that were read in it. A row
-- describes the readings of its time, NULLs apart: `mean`, `min`, `max` and `count` of what varies (power_watts.mean), the
-- highest reading of what only grows or hardly changes, all bits of throttle_reasons, and the sum of what was counted.
-- Where no reading has a value the whole column is NULL. FLOAT has seven digits, more than any sensor, and takes half the
-- disk. docs/scale.md says when samples are thinned out.

-- host_samples, thinned out to one row a second or minute. A STRUCT has `mean`, `min`, `max` and `count` of the readings.
CREATE TABLE host_rollups (
    session_id BIGINT,                    -- | the agent process | host_samples
    node_id BIGINT,                       -- | the node | host_samples
    time TIMESTAMP,                       -- UTC | when its second or minute began | collector
    seconds BIGINT,                       -- s | how long its time is: 1 or 60 | collector
    cpu_percent STRUCT(mean FLOAT, min FLOAT, max FLOAT, count BIGINT), -- % of all logical CPUs | of the readings | host_samples
    cpu_user_percent STRUCT(mean FLOAT, min FLOAT, max FLOAT, count BIGINT), -- % of all logical CPUs | of the readings | host_samples
    cpu_system_percent STRUCT(mean FLOAT, min FLOAT, max FLOAT, count BIGINT), -- % of all logical CPUs | of the readings | host_samples
    cpu_iowait_percent STRUCT(mean FLOAT, min FLOAT, max FLOAT, count BIGINT), -- % of all logical CPUs | of the readings | host_samples
    cpu_steal_percent STRUCT(mean FLOAT, min FLOAT, max FLOAT, count BIGINT), -- % of all logical CPUs | of the readings | host_samples
    cpu_power_watts STRUCT(mean FLOAT, min FLOAT, max FLOAT, count BIGINT), -- W | of the readings | host_samples
    dram_power_watts STRUCT(mean FLOAT, min FLOAT, max FLOAT, count BIGINT), -- W | of the readings | host_samples
    cpu_frequency_mhz STRUCT(mean FLOAT, min FLOAT, max FLOAT, count BIGINT), -- MHz | of the readings | host_samples
    load_1m STRUCT(mean FLOAT, min FLOAT, max FLOAT, count BIGINT), -- tasks | of the readings | host_samples
    memory_total_bytes BIGINT,            -- bytes | highest reading | host_samples
    memory_used_bytes STRUCT(mean FLOAT, min BIGINT, max BIGINT, count BIGINT), -- bytes | of the readings | host_samples
    memory_available_bytes STRUCT(mean FLOAT, min BIGINT, max BIGINT, count BIGINT), -- bytes | of the readings | host_samples
    memory_anonymous_bytes STRUCT(mean FLOAT, min BIGINT, max BIGINT, count BIGINT), -- bytes | of the readings | host_samples
    memory_cached_bytes STRUCT(mean FLOAT, min BIGINT, max BIGINT, count BIGINT), -- bytes | of the readings | host_samples
    swap_total_bytes BIGINT,              -- bytes | highest reading | host_samples
    swap_used_bytes STRUCT(mean FLOAT, min BIGINT, max BIGINT, count BIGINT), -- bytes | of the readings | host_samples
    disk_read_bytes_per_second STRUCT(mean FLOAT, min FLOAT, max FLOAT, count BIGINT), -- bytes/s | of the readings | host_samples
    disk_write_bytes_per_second STRUCT(mean FLOAT, min FLOAT, max FLOAT, count BIGINT), -- bytes/s | of the readings | host_samples
    network_receive_bytes_per_second STRUCT(mean FLOAT, min FLOAT, max FLOAT, count BIGINT), -- bytes/s | of the readings | host_samples
    network_send_bytes_per_second STRUCT(mean FLOAT, min FLOAT, max FLOAT, count BIGINT) -- bytes/s | of the readings | host_samples
);

-- core_samples, thinned out to one row a second or minute. A STRUCT has `mean`, `min`, `max` and `count` of the readings.
CREATE TABLE core_rollups (
    session_id BIGINT,                    -- | the agent process | core_samples
    node_id BIGINT,                       -- | the node | core_samples
    time TIMESTAMP,                       -- UTC | when its second or minute began | collector
    seconds BIGINT,                       -- s | how long its time is: 1 or 60 | collector
    core BIGINT,                          -- | number of the logical CPU | core_samples
    cpu_percent STRUCT(mean FLOAT, min FLOAT, max FLOAT, count BIGINT) -- % of this CPU | of the readings | core_samples
);

-- cgroup_samples, thinned out to one row a second or minute. A STRUCT has `mean`, `min`, `max` and `count` of the readings.
CREATE TABLE cgroup_rollups (
    session_id BIGINT,                    -- | the agent process | cgroup_samples
    node_id BIGINT,                       -- | the node | cgroup_samples
    time TIMESTAMP,                       -- UTC | when its second or minute began | collector
    seconds BIGINT,                       -- s | how long its time is: 1 or 60 | collector
    path VARCHAR,                         -- | the group, below its controller's mount | cgroup_samples
    run_id VARCHAR,                       -- | the run whose group it is; NULL: the agent's | cgroup_samples
    cpu_cores STRUCT(mean FLOAT, min FLOAT, max FLOAT, count BIGINT), -- cores | of the readings | cgroup_samples
    cpu_limit_cores DOUBLE,               -- cores | highest reading | cgroup_samples
    cpu_throttled_percent STRUCT(mean FLOAT, min FLOAT, max FLOAT, count BIGINT), -- % of periods | of the readings | cgroup_samples
    memory_used_bytes STRUCT(mean FLOAT, min BIGINT, max BIGINT, count BIGINT), -- bytes | of the readings | cgroup_samples
    memory_anonymous_bytes STRUCT(mean FLOAT, min BIGINT, max BIGINT, count BIGINT), -- bytes | of the readings | cgroup_samples
    memory_file_bytes STRUCT(mean FLOAT, min BIGINT, max BIGINT, count BIGINT), -- bytes | of the readings | cgroup_samples
    memory_limit_bytes BIGINT,            -- bytes | highest reading | cgroup_samples
    oom_kills BIGINT                      -- | highest reading | cgroup_samples
);

-- process_samples, thinned out to one row a second or minute. A STRUCT has `mean`, `min`, `max` and `count` of the readings.
CREATE TABLE process_rollups (
    session_id BIGINT,                    -- | the agent process | process_samples
    node_id BIGINT,                       -- | the node | process_samples
    time TIMESTAMP,                       -- UTC | when its second or minute began | collector
    seconds BIGINT,                       -- s | how long its time is: 1 or 60 | collector
    run_id VARCHAR,                       -- | the run | process_samples
    processes STRUCT(mean FLOAT, min BIGINT, max BIGINT, count BIGINT), -- | of the readings | process_samples
    threads STRUCT(mean FLOAT, min BIGINT, max BIGINT, count BIGINT), -- | of the readings | process_samples
    cpu_cores STRUCT(mean FLOAT, min FLOAT, max FLOAT, count BIGINT), -- cores | of the readings | process_samples
    rss_bytes STRUCT(mean FLOAT, min BIGINT, max BIGINT, count BIGINT), -- bytes | of the readings | process_samples
    pss_bytes STRUCT(mean FLOAT, min BIGINT, max BIGINT, count BIGINT), -- bytes | of the readings | process_samples
    anonymous_bytes STRUCT(mean FLOAT, min BIGINT, max BIGINT, count BIGINT), -- bytes | of the readings | process_samples
    read_bytes_per_second STRUCT(mean FLOAT, min FLOAT, max FLOAT, count BIGINT), -- bytes/s | of the readings | process_samples
    write_bytes_per_second STRUCT(mean FLOAT, min FLOAT, max FLOAT, count BIGINT) -- bytes/s | of the readings | process_samples
);

-- gpu_samples, thinned out to one row a second or minute. A STRUCT has `mean`, `min`, `max` and `count` of the readings.
CREATE TABLE gpu_rollups (
    session_id BIGINT,                    -- | the agent process | gpu_samples
    node_id BIGINT,                       -- | the node | gpu_samples
    time TIMESTAMP,                       -- UTC | when its second or minute began | collector
    seconds BIGINT,                       -- s | how long its time is: 1 or 60 | collector
    device_id BIGINT,                     -- | the GPU | gpu_samples
    utilization_percent STRUCT(mean FLOAT, min FLOAT, max FLOAT, count BIGINT), -- % of time | of the readings | gpu_samples
    memory_utilization_percent STRUCT(mean FLOAT, min FLOAT, max FLOAT, count BIGINT), -- % of time | of the readings | gpu_samples
    memory_used_bytes STRUCT(mean FLOAT, min BIGINT, max BIGINT, count BIGINT), -- bytes | of the readings | gpu_samples
    memory_reserved_bytes STRUCT(mean FLOAT, min BIGINT, max BIGINT, count BIGINT), -- bytes | of the readings | gpu_samples
    memory_total_bytes BIGINT,            -- bytes | highest reading | gpu_samples
    power_watts STRUCT(mean FLOAT, min FLOAT, max FLOAT, count BIGINT), -- W | of the readings | gpu_samples
    power_kind VARCHAR,                   -- | what power_watts is | gpu_samples
    temperature_celsius STRUCT(mean FLOAT, min FLOAT, max FLOAT, count BIGINT), -- °C | of the readings | gpu_samples
    sm_clock_mhz STRUCT(mean FLOAT, min FLOAT, max FLOAT, count BIGINT), -- MHz | of the readings | gpu_samples
    memory_clock_mhz STRUCT(mean FLOAT, min FLOAT, max FLOAT, count BIGINT), -- MHz | of the readings | gpu_samples
    throttle_reasons BIGINT,              -- bits | why clocks were held at any reading, NVML's clock event reasons | gpu_samples
    ecc_errors_uncorrected BIGINT,        -- | highest reading | gpu_samples
    process_count STRUCT(mean FLOAT, min BIGINT, max BIGINT, count BIGINT), -- | of the readings | gpu_samples
    energy_joules DOUBLE,                 -- J | highest reading | gpu_samples
    sm_active_percent STRUCT(mean FLOAT, min FLOAT, max FLOAT, count BIGINT), -- % of time | of the readings | gpu_samples
    sm_occupancy_percent STRUCT(mean FLOAT, min FLOAT, max FLOAT, count BIGINT), -- % of the SM's most | of the readings | gpu_samples
    tensor_active_percent STRUCT(mean FLOAT, min FLOAT, max FLOAT, count BIGINT), -- % of time | of the readings | gpu_samples
    tensor_half_active_percent STRUCT(mean FLOAT, min FLOAT, max FLOAT, count BIGINT), -- % of time | of the readings | gpu_samples
    tensor_integer_active_percent STRUCT(mean FLOAT, min FLOAT, max FLOAT, count BIGINT), -- % of time | of the readings | gpu_samples
    tensor_fp64_active_percent STRUCT(mean FLOAT, min FLOAT, max FLOAT, count BIGINT), -- % of time | of the readings | gpu_samples
    fp16_active_percent STRUCT(mean FLOAT, min FLOAT, max FLOAT, count BIGINT), -- % of time | of the readings | gpu_samples
    fp32_active_percent STRUCT(mean FLOAT, min FLOAT, max FLOAT, count BIGINT), -- % of time | of the readings | gpu_samples
    fp64_active_percent STRUCT(mean FLOAT, min FLOAT, max FLOAT, count BIGINT), -- % of time | of the readings | gpu_samples
    integer_active_percent STRUCT(mean FLOAT, min FLOAT, max FLOAT, count BIGINT), -- % of time | of the readings | gpu_samples
    dram_active_percent STRUCT(mean FLOAT, min FLOAT, max FLOAT, count BIGINT), -- % of its peak | of the readings | gpu_samples
    pcie_send_bytes_per_second STRUCT(mean FLOAT, min FLOAT, max FLOAT, count BIGINT), -- bytes/s | of the readings | gpu_samples
    pcie_receive_bytes_per_second STRUCT(mean FLOAT, min FLOAT, max FLOAT, count BIGINT), -- bytes/s | of the readings | gpu_samples
    nvlink_send_bytes_per_second STRUCT(mean FLOAT, min FLOAT, max FLOAT, count BIGINT), -- bytes/s | of the readings | gpu_samples
    nvlink_receive_bytes_per_second STRUCT(mean FLOAT, min FLOAT, max FLOAT, count BIGINT) -- bytes/s | of the readings | gpu_samples
);

-- power_samples, thinned out to one row a second or minute. A STRUCT has `mean`, `min`, `max` and `count` of the readings.
CREATE TABLE power_rollups (
    session_id BIGINT,                    -- | the agent process | power_samples
    node_id BIGINT,                       -- | the node | power_samples
    time TIMESTAMP,                       -- UTC | when its second or minute began | collector
    seconds BIGINT,                       -- s | how long its time is: 1 or 60 | collector
    device_id BIGINT,                     -- | the GPU | power_samples
    power_watts STRUCT(mean FLOAT, min FLOAT, max FLOAT, count BIGINT) -- W | of the readings | power_samples
);

-- gpu_process_samples, thinned out to one row a second or minute. A STRUCT has `mean`, `min`, `max` and `count` of the readings.
CREATE TABLE gpu_process_rollups (
    session_id BIGINT,                    -- | the agent process | gpu_process_samples
    node_id BIGINT,                       -- | the node | gpu_process_samples
    time TIMESTAMP,                       -- UTC | when its second or minute began | collector
    seconds BIGINT,                       -- s | how long its time is: 1 or 60 | collector
    device_id BIGINT,                     -- | the GPU | gpu_process_samples
    pid BIGINT,                           -- | the process, as the agent's /proc numbers it, or NVML where it is not found there | gpu_process_samples
    run_id VARCHAR,                       -- | the run it belongs to; NULL: somebody else's, or, where process_count is NULL, not to be told | gpu_process_samples
    pod_uid VARCHAR,                      -- | the Kubernetes pod it runs in (metadata.uid); NULL: in none, or the agent does not share the host's processes | gpu_process_samples
    container_id VARCHAR,                 -- | its container, as `crictl ps --no-trunc` and `docker ps --no-trunc` show it; NULL as pod_uid | gpu_process_samples
    memory_used_bytes STRUCT(mean FLOAT, min BIGINT, max BIGINT, count BIGINT), -- bytes | of the readings | gpu_process_samples
    utilization_percent STRUCT(mean FLOAT, min FLOAT, max FLOAT, count BIGINT), -- % of time | of the readings | gpu_process_samples
    memory_utilization_percent STRUCT(mean FLOAT, min FLOAT, max FLOAT, count BIGINT) -- % of time | of the readings | gpu_process_samples
);

-- gpu_health_samples, thinned out to one row a second or minute. A STRUCT has `mean`, `min`, `max` and `count` of the readings.
CREATE TABLE gpu_health_rollups (
    session_id BIGINT,                    -- | the agent process | gpu_health_samples
    node_id BIGINT,                       -- | the node | gpu_health_samples
    time TIMESTAMP,                       -- UTC | when its second or minute began | collector
    seconds BIGINT,                       -- s | how long its time is: 1 or 60 | collector
    device_id BIGINT,                     -- | the GPU | gpu_health_samples
    remapped_rows_correctable BIGINT,     -- rows | highest reading | gpu_health_samples
    remapped_rows_uncorrectable BIGINT,   -- rows | highest reading | gpu_health_samples
    retired_pages BIGINT,                 -- pages | highest reading | gpu_health_samples
    memory_repair_pending BIGINT,         -- | highest reading | gpu_health_samples
    memory_repair_failed BIGINT,          -- | highest reading | gpu_health_samples
    pcie_generation STRUCT(mean FLOAT, min BIGINT, max BIGINT, count BIGINT), -- | of the readings | gpu_health_samples
    pcie_width STRUCT(mean FLOAT, min BIGINT, max BIGINT, count BIGINT) -- lanes | of the readings | gpu_health_samples
);

-- source_samples, thinned out to one row a second or minute. A STRUCT has `mean`, `min`, `max` and `count` of the readings.
CREATE TABLE source_rollups (
    session_id BIGINT,                    -- | the agent process | source_samples
    node_id BIGINT,                       -- | the node | source_samples
    time TIMESTAMP,                       -- UTC | when its second or minute began | collector
    seconds BIGINT,                       -- s | how long its time is: 1 or 60 | collector
    source VARCHAR,                       -- | the source | source_samples
    rate_hz DOUBLE,                       -- Hz | highest reading | source_samples
    reads BIGINT,                         -- | sum of reads | source_samples
    failures BIGINT,                      -- | sum of failures | source_samples
    late_ticks BIGINT,                    -- | sum of late_ticks | source_samples
    missed_ticks BIGINT,                  -- | sum of missed_ticks | source_samples
    busy_seconds DOUBLE,                  -- s | sum of busy_seconds | source_samples
    error VARCHAR                         -- | one of the failures in words; NULL: none | source_samples
);
