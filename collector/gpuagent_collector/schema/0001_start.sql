-- The store's first schema. It uses only what DuckDB and DuckLake both have: no keys, UNIQUE, CHECK, ENUM, sequences.
-- Every table is appended to and never updated; what changes is a later row, and a view shows the last one.
--
-- Behind each column: unit | what it is | where it comes from. `collector schema` prints these.

-- One row for each agent process: who it was, and what it found on its node when it started.
CREATE TABLE sessions (
    session_id BIGINT,                    -- | key of session_uuid | agent
    session_uuid VARCHAR,                 -- | random identity of one agent process | agent
    node_id BIGINT,                       -- | key of node_uuid | agent
    node_uuid VARCHAR,                    -- | identity of the node | /etc/machine-id, hashed; in a container the boot ID; --node-id
    hostname VARCHAR,                     -- | the node's name | uname
    platform VARCHAR,                     -- | the name the user gave this kind of place | --platform
    labels JSON,                          -- | the user's labels and in a job Slurm's (slurm_job_id, …), an object of strings | --label
    started_at TIMESTAMP,                 -- UTC | when the agent started | agent's wall clock
    agent_version VARCHAR,                -- | version of gpuagent | agent
    python_version VARCHAR,               -- | version of the agent's Python | agent
    rate_hz DOUBLE,                       -- Hz | how often cheap readings were asked for | --rate
    virtualization VARCHAR,               -- | none, kvm, vmware, …; NULL where it cannot be told | DMI, CPU flags
    container VARCHAR,                    -- | none, docker, podman, apptainer, charliecloud, … around the agent | marker files, cgroup
    orchestrator VARCHAR,                 -- | none, kubernetes, openshift, slurm, lsf around the agent | environment, mounts
    os VARCHAR,                           -- | distribution and version | /etc/os-release
    kernel VARCHAR,                       -- | kernel release | uname
    architecture VARCHAR,                 -- | x86_64, aarch64, ppc64le, … | uname
    boot_id VARCHAR,                      -- | changes when the node restarts | /proc/sys/kernel/random/boot_id
    cpu_model VARCHAR,                    -- | the processor's name | /proc/cpuinfo
    cpu_sockets BIGINT,                   -- | processors | /proc/cpuinfo
    cpu_cores BIGINT,                     -- | physical cores of the node | /proc/cpuinfo
    cpu_threads BIGINT,                   -- | logical CPUs of the node | /proc/stat
    cpu_limit_cores DOUBLE,               -- cores | CPU that the agent may use: quota or allowed CPUs, the less; NULL: no limit | cgroup
    memory_total_bytes BIGINT,            -- bytes | the node's memory | /proc/meminfo
    memory_limit_bytes BIGINT,            -- bytes | memory that the agent's container may use; NULL: no limit | cgroup
    swap_total_bytes BIGINT,              -- bytes | the node's swap | /proc/meminfo
    gpu_count BIGINT,                     -- | GPUs that the agent can see | NVML
    driver_version VARCHAR,               -- | GPU driver | NVML
    cuda_driver_version VARCHAR,          -- | newest CUDA that the driver supports | NVML
    cloud_provider VARCHAR,               -- | gcp, aws, azure, …; NULL when none is told by local files | DMI
    instance_type VARCHAR                 -- | the cloud's machine type, where local files tell | DMI
);

-- The GPUs and MIG instances as each session found them. What a MIG instance does not have of its own is its GPU's, but
-- for power limit and CUDA cores, which are NULL.
CREATE TABLE session_devices (
    session_id BIGINT,                    -- | the agent process that saw it | agent
    node_id BIGINT,                       -- | the node it was in | agent
    time TIMESTAMP,                       -- UTC | when it was looked at | agent's wall clock
    device_id BIGINT,                     -- | key of uuid | agent
    uuid VARCHAR,                         -- | the GPU's UUID | NVML
    parent_device_id BIGINT,              -- | the GPU of which this is a MIG instance; NULL for a whole GPU | NVML
    device_index BIGINT,                  -- | NVML's index at that time; never an identity | NVML
    name VARCHAR,                         -- | product name | NVML
    architecture VARCHAR,                 -- | Volta, Ampere, Hopper, … | NVML
    compute_capability VARCHAR,           -- | CUDA compute capability, as 9.0 | NVML
    memory_total_bytes BIGINT,            -- bytes | device memory; the node's where the GPU has none of its own | NVML memory info, /proc/meminfo
    power_limit_watts DOUBLE,             -- W | enforced power limit | NVML
    sm_clock_max_mhz DOUBLE,              -- MHz | highest SM clock | NVML
    memory_clock_max_mhz DOUBLE,          -- MHz | highest memory clock | NVML
    cuda_cores BIGINT,                    -- | CUDA cores | NVML
    pcie_generation_max BIGINT,           -- | highest PCIe generation of GPU and slot | NVML
    pcie_width_max BIGINT,                -- lanes | widest PCIe link of GPU and slot | NVML
    pcie_generation BIGINT,               -- | PCIe generation at that time; idle links may rest lower | NVML
    pcie_width BIGINT,                    -- lanes | PCIe link width at that time | NVML
    pci_bus_id VARCHAR,                   -- | where it sits | NVML
    mig_mode BIGINT,                      -- | 1: divided into MIG instances, 0: whole; NULL: has no MIG | NVML
    ecc_mode BIGINT,                      -- | 1: ECC on, 0: off; NULL: has none | NVML
    gpu_instance_id BIGINT,               -- | of a MIG instance: the GPU instance it is in, as nvidia-smi numbers it; this and all below NULL for a whole GPU | NVML
    compute_instance_id BIGINT,           -- | of a MIG instance: its number within the GPU instance | NVML
    gpu_slices BIGINT,                    -- | of a MIG instance: slices of the GPU that its GPU instance has | NVML attributes
    compute_slices BIGINT,                -- | of a MIG instance: slices of those that it computes on | NVML attributes
    multiprocessors BIGINT                -- | of a MIG instance: SMs that it computes on | NVML attributes
);

-- What was asked for, one row a run.
CREATE TABLE run_requests (
    session_id BIGINT,                    -- | the agent process that took it | agent
    node_id BIGINT,                       -- | the node it started on | agent
    time TIMESTAMP,                       -- UTC | when it was queued | agent's wall clock
    run_id VARCHAR,                       -- | the run's identity | agent
    experiment VARCHAR,                   -- | groups the runs of one question | --experiment, or made up
    workload VARCHAR,                     -- | name of the built-in workload, or of the command's program | agent
    command JSON,                         -- | the program and its arguments, secrets taken out, an array | agent
    parameters JSON,                      -- | the workload's parameters with their defaults, an object | workload
    environment VARCHAR,                  -- | bare, docker, podman, … | --environment
    image VARCHAR,                        -- | container image; NULL where there is none | --environment
    interference VARCHAR,                 -- | what deliberately ran beside it, comma-separated; 'none' | --with
    limits VARCHAR,                       -- | what it may use of the node, as 'cpus=2 memory=8G', and changes of that while it runs, as 'cpus=8@60s'; 'none' | --cpus, --memory, --change
    repeat BIGINT,                        -- | number of the repeat, from 1 | agent
    labels JSON,                          -- | the user's labels for this run, an object of strings | --label
    timeout_seconds DOUBLE,               -- s | when it would be stopped; NULL: never | --timeout
    nodes BIGINT                          -- | how many nodes run it together, each with a row here; NULL: one | --nodes
);

-- The life of each run, one row a change.
CREATE TABLE run_states (
    session_id BIGINT,                    -- | the agent process that said so; NULL: the collector did | agent
    node_id BIGINT,                       -- | the node it ran on | agent
    time TIMESTAMP,                       -- UTC | when it changed | wall clock of who said so
    run_id VARCHAR,                       -- | the run | agent
    status VARCHAR,                       -- | queued, running, succeeded, failed, cancelled, timed_out, lost | agent or collector
    exit_code BIGINT,                     -- | the program's exit code, negative for a signal; NULL: has none | agent
    reason VARCHAR                        -- | why it did not succeed, in words | agent or collector
);

-- The container image of each run that was in one, as it lay on the node.
CREATE TABLE images (
    session_id BIGINT,                    -- | the agent process that looked | agent
    node_id BIGINT,                       -- | the node it lies on | agent
    time TIMESTAMP,                       -- UTC | when the run was queued | agent's wall clock
    run_id VARCHAR,                       -- | the run | agent
    environment VARCHAR,                  -- | docker, podman, apptainer, … | --environment
    image VARCHAR,                        -- | the image as the user named it | --environment
    digest VARCHAR,                       -- | sha256: of its configuration and layers, sif: identity of a .sif file; NULL: a directory has none | the environment
    architecture VARCHAR,                 -- | of its programs, as uname -m names it; NULL: not known | the environment, or its /bin/sh
    size_bytes BIGINT,                    -- B | what it takes on disk, layers that it shares with others included; NULL: not known | the environment
    layers BIGINT,                        -- | layers that it is made of; NULL: not known, or none, as a directory has | the environment
    build_seconds DOUBLE,                 -- s | how long building it took on this node, without a cache; NULL: not built here by gpuagent | gpuagent image build
    push_seconds DOUBLE,                  -- s | how long bringing it to a registry took; NULL: not done | gpuagent image build --push
    pull_seconds DOUBLE                   -- s | how long bringing it from a registry took, none of it here before; NULL: not done by gpuagent | gpuagent image pull
);

-- Which ranks a run had, and which GPU each used.
CREATE TABLE run_devices (
    session_id BIGINT,                    -- | the agent process that saw it | agent
    node_id BIGINT,                       -- | the node of the rank | agent
    time TIMESTAMP,                       -- UTC | when it began to use the device, or was first seen there | workload or agent
    run_id VARCHAR,                       -- | the run | agent
    rank BIGINT,                          -- | the rank, from 0; NULL: found by processes, which have no rank | workload
    device_id BIGINT,                     -- | the GPU; NULL: a rank without GPU | workload, or NVML's process list
    pid BIGINT,                           -- | the rank's process, as the agent sees it | workload or NVML
    found_by VARCHAR                      -- | workload: it said so; processes: NVML listed its process on the GPU | agent or collector
);

-- What runs reported beside steps and results: phases, algorithms, output tails.
CREATE TABLE run_events (
    session_id BIGINT,                    -- | the agent process that read it | agent
    node_id BIGINT,                       -- | the node of the rank | agent
    time TIMESTAMP,                       -- UTC | when it happened | workload's wall clock
    run_id VARCHAR,                       -- | the run | agent
    rank BIGINT,                          -- | the rank, from 0; NULL: the agent speaks of the whole run | workload
    event VARCHAR,                        -- | phase, metric, output, … of the run; start: of its program; gpu_lost, gpu_found: of any GPU of its node | workload or agent
    name VARCHAR,                         -- | for a phase: prepare, setup, warmup, measure, teardown, end; for a start: launch (called for), process (began); for a GPU: its UUID | workload or agent
    detail JSON                           -- | everything else of the event, an object | workload or agent
);

-- One row a step that the workload reported, or a printed line of progress. Lines that the kernel gives one time, of 4 ms, are one row; of more than 8,192 lines every second is left out.
CREATE TABLE steps (
    session_id BIGINT,                    -- | the agent process that read it | agent
    node_id BIGINT,                       -- | the node of the rank | agent
    time TIMESTAMP,                       -- UTC | when the step ended | workload's wall clock
    run_id VARCHAR,                       -- | the run | agent
    rank BIGINT,                          -- | the rank, from 0 | workload
    phase VARCHAR,                        -- | warmup or measure | workload
    step BIGINT,                          -- | number of the step in its phase, from 0 | workload
    wall_seconds DOUBLE,                  -- s | wall time of the step; of printed lines the mean of the steps since the line before | workload's monotonic clock, or the times of lines
    gpu_seconds DOUBLE,                   -- s | time between the step's CUDA events; NULL without GPU | workload
    items DOUBLE                          -- | samples or tokens that the step took | workload
);

-- Figures of a whole run or phase.
CREATE TABLE results (
    session_id BIGINT,                    -- | the agent process that read it | agent
    node_id BIGINT,                       -- | the node of the rank | agent
    time TIMESTAMP,                       -- UTC | when it was reported | workload's wall clock
    run_id VARCHAR,                       -- | the run | agent
    rank BIGINT,                          -- | the rank, from 0 | workload
    phase VARCHAR,                        -- | the phase it describes; NULL: the whole run | workload
    name VARCHAR,                         -- | what it is: throughput, parameters, accuracy, … | workload
    value DOUBLE,                         -- see unit | the figure; NULL when it is a text | workload
    value_text VARCHAR,                   -- | the text; NULL when it is a figure | workload
    unit VARCHAR                          -- | unit of value; NULL: a plain number or a text | workload
);

-- What a profiler saw of each operator, kernel, copy and set in a few steps, all calls of a name added up. Rows named
-- '(others)' hold what has no row of its own. Operators' times are of the same work as the kernels': add up one kind.
CREATE TABLE op_times (
    session_id BIGINT,                    -- | the agent process that read it | agent
    node_id BIGINT,                       -- | the node of the rank | agent
    time TIMESTAMP,                       -- UTC | when it was reported | workload's wall clock
    run_id VARCHAR,                       -- | the run | agent
    rank BIGINT,                          -- | the rank, from 0 | workload
    kind VARCHAR,                         -- | operator (on the host), kernel, memcpy, memset (on the GPU) | torch.profiler
    name VARCHAR,                         -- | of the operator or kernel, cut after 1,000 characters | torch.profiler
    calls BIGINT,                         -- | how often it was called in the traced steps | torch.profiler
    steps BIGINT,                         -- | how many steps were traced | workload
    cpu_seconds DOUBLE,                   -- s | operator's time on the host, in what it called, too; NULL: not an operator, or '(others)' | torch.profiler
    cpu_self_seconds DOUBLE,              -- s | the same without what it called | torch.profiler
    gpu_seconds DOUBLE,                   -- s | time on the GPU; of an operator, of all that it and what it called launched; NULL: no GPU, or operators' '(others)' | torch.profiler, CUPTI
    gpu_self_seconds DOUBLE               -- s | operator's time on the GPU, of what it launched itself; NULL: no GPU, or not an operator | torch.profiler, CUPTI
);

-- The node as a whole.
CREATE TABLE host_samples (
    session_id BIGINT,                    -- | the agent process | agent
    node_id BIGINT,                       -- | the node | agent
    time TIMESTAMP,                       -- UTC | when it was read | agent's wall clock
    cpu_percent DOUBLE,                   -- % of all logical CPUs | time not idle and not waiting since the last sample | /proc/stat
    cpu_user_percent DOUBLE,              -- % of all logical CPUs | in programs, nice ones included | /proc/stat
    cpu_system_percent DOUBLE,            -- % of all logical CPUs | in the kernel, interrupts included | /proc/stat
    cpu_iowait_percent DOUBLE,            -- % of all logical CPUs | idle while a disk was waited for | /proc/stat
    cpu_steal_percent DOUBLE,             -- % of all logical CPUs | taken by the hypervisor for others | /proc/stat
    cpu_power_watts DOUBLE,               -- W | mean power of all processors since the last sample; NULL where not readable | RAPL (zones package-*), or hwmon
    dram_power_watts DOUBLE,              -- W | mean power of the memory since the last sample, not in cpu_power_watts; NULL where not readable | RAPL (zones dram), or hwmon
    cpu_frequency_mhz DOUBLE,             -- MHz | mean over the CPUs; NULL where it cannot be read | sysfs cpufreq
    load_1m DOUBLE,                       -- tasks | load average over a minute | /proc/loadavg
    memory_total_bytes BIGINT,            -- bytes | the node's memory | /proc/meminfo MemTotal
    memory_used_bytes BIGINT,             -- bytes | total less available | /proc/meminfo MemTotal - MemAvailable
    memory_available_bytes BIGINT,        -- bytes | what programs can still get without swapping | /proc/meminfo MemAvailable
    memory_anonymous_bytes BIGINT,        -- bytes | programs' own memory, page cache apart | /proc/meminfo AnonPages
    memory_cached_bytes BIGINT,           -- bytes | page cache, shared memory included | /proc/meminfo Cached
    swap_total_bytes BIGINT,              -- bytes | swap | /proc/meminfo SwapTotal
    swap_used_bytes BIGINT,               -- bytes | swap in use | /proc/meminfo SwapTotal - SwapFree
    disk_read_bytes_per_second DOUBLE,    -- bytes/s | read from whole disks since the last sample | /proc/diskstats
    disk_write_bytes_per_second DOUBLE,   -- bytes/s | written to whole disks since the last sample | /proc/diskstats
    network_receive_bytes_per_second DOUBLE, -- bytes/s | received on all interfaces but loopback | /proc/net/dev
    network_send_bytes_per_second DOUBLE  -- bytes/s | sent on all interfaces but loopback | /proc/net/dev
);

-- Each logical CPU; only earlier agents stored it.
CREATE TABLE core_samples (
    session_id BIGINT,                    -- | the agent process | agent
    node_id BIGINT,                       -- | the node | agent
    time TIMESTAMP,                       -- UTC | when it was read | agent's wall clock
    core BIGINT,                          -- | number of the logical CPU | /proc/stat
    cpu_percent DOUBLE                    -- % of this CPU | time not idle and not waiting since the last sample | /proc/stat
);

-- Control groups: the agent's own, which shows what its container may use, and those of runs.
CREATE TABLE cgroup_samples (
    session_id BIGINT,                    -- | the agent process | agent
    node_id BIGINT,                       -- | the node | agent
    time TIMESTAMP,                       -- UTC | when it was read | agent's wall clock
    path VARCHAR,                         -- | the group, below its controller's mount | /proc/PID/cgroup
    run_id VARCHAR,                       -- | the run whose group it is; NULL: the agent's | agent
    cpu_cores DOUBLE,                     -- cores | CPU time used by wall time since the last sample | cpu.stat, cpuacct.usage
    cpu_limit_cores DOUBLE,               -- cores | quota by period; NULL: no limit | cpu.max, cpu.cfs_quota_us
    cpu_throttled_percent DOUBLE,         -- % of periods | periods in which it was held back since the last sample | cpu.stat
    memory_used_bytes BIGINT,             -- bytes | all memory charged to it, page cache included | memory.current, memory.usage_in_bytes
    memory_anonymous_bytes BIGINT,        -- bytes | programs' own memory, page cache apart | memory.stat anon, total_rss
    memory_file_bytes BIGINT,             -- bytes | page cache charged to it | memory.stat file, total_cache
    memory_limit_bytes BIGINT,            -- bytes | its limit; NULL: none | memory.max, memory.limit_in_bytes
    oom_kills BIGINT                      -- | processes killed for memory since it exists | memory.events, memory.oom_control
);

-- A run's process tree on one node.
CREATE TABLE process_samples (
    session_id BIGINT,                    -- | the agent process | agent
    node_id BIGINT,                       -- | the node | agent
    time TIMESTAMP,                       -- UTC | when it was read | agent's wall clock
    run_id VARCHAR,                       -- | the run | agent
    processes BIGINT,                     -- | processes of the tree | /proc
    threads BIGINT,                       -- | their threads | /proc/PID/stat
    cpu_cores DOUBLE,                     -- cores | CPU time used by wall time since the last sample | /proc/PID/stat
    rss_bytes BIGINT,                     -- bytes | resident memory; shared pages count in every process | /proc/PID/stat
    pss_bytes BIGINT,                     -- bytes | resident memory; shared pages divided among those who share; slow lane | /proc/PID/smaps_rollup
    anonymous_bytes BIGINT,               -- bytes | programs' own memory, page cache apart | /proc/PID/status RssAnon
    read_bytes_per_second DOUBLE,         -- bytes/s | read from storage since the last sample | /proc/PID/io
    write_bytes_per_second DOUBLE         -- bytes/s | written to storage since the last sample | /proc/PID/io
);

-- Each GPU.
CREATE TABLE gpu_samples (
    session_id BIGINT,                    -- | the agent process | agent
    node_id BIGINT,                       -- | the node | agent
    time TIMESTAMP,                       -- UTC | when it was read | agent's wall clock
    device_id BIGINT,                     -- | the GPU | agent
    utilization_percent DOUBLE,           -- % of time | share of the last 1/6 to 1 s in which at least one kernel ran; says nothing of how much of the GPU it used | NVML
    memory_utilization_percent DOUBLE,    -- % of time | share of the same window in which device memory was read or written; not capacity | NVML
    memory_used_bytes BIGINT,             -- bytes | device memory in use, the driver's own share apart | NVML memory info v2
    memory_reserved_bytes BIGINT,         -- bytes | device memory kept by driver and firmware; NULL where v2 is missing | NVML memory info v2
    memory_total_bytes BIGINT,            -- bytes | device memory; the node's where the GPU has none of its own | NVML memory info, /proc/meminfo
    power_watts DOUBLE,                   -- W | power of the whole board | NVML
    power_kind VARCHAR,                   -- | instant, or average_1s: what power_watts is | NVML field, or architecture
    temperature_celsius DOUBLE,           -- °C | the GPU's core | NVML
    sm_clock_mhz DOUBLE,                  -- MHz | SM clock | NVML
    memory_clock_mhz DOUBLE,              -- MHz | memory clock | NVML
    throttle_reasons BIGINT,              -- bits | why clocks were held, NVML's clock event reasons; 1 is only idle | NVML
    ecc_errors_uncorrected BIGINT,        -- | uncorrected ECC errors since the driver was loaded; NULL: has no ECC | NVML
    process_count BIGINT,                 -- | compute processes on the GPU, everybody's; slow lane; NULL: not all can be seen, in a PID namespace | NVML
    energy_joules DOUBLE,                 -- J | energy since the driver was loaded; slow lane; Volta and newer | NVML
    sm_active_percent DOUBLE,             -- % of time | SMs with at least one warp, mean over SMs; this and all below NULL where not readable | GPM, before Hopper DCGM
    sm_occupancy_percent DOUBLE,          -- % of the SM's most | warps resident, mean over SMs and time | GPM, before Hopper DCGM
    tensor_active_percent DOUBLE,         -- % of time | tensor pipe busy, with any type | GPM, before Hopper DCGM
    tensor_half_active_percent DOUBLE,    -- % of time | tensor pipe busy with HMMA: FP16, BF16, TF32 | GPM
    tensor_integer_active_percent DOUBLE, -- % of time | tensor pipe busy with IMMA | GPM
    tensor_fp64_active_percent DOUBLE,    -- % of time | tensor pipe busy with DFMA | GPM
    fp16_active_percent DOUBLE,           -- % of time | FP16 pipe busy, tensor pipe apart | GPM, before Hopper DCGM
    fp32_active_percent DOUBLE,           -- % of time | FP32 pipe busy | GPM, before Hopper DCGM
    fp64_active_percent DOUBLE,           -- % of time | FP64 pipe busy, tensor pipe apart | GPM, before Hopper DCGM
    integer_active_percent DOUBLE,        -- % of time | integer pipe busy | GPM
    dram_active_percent DOUBLE,           -- % of its peak | device memory bandwidth in use; by DCGM, cycles in which data moved | GPM, before Hopper DCGM
    pcie_send_bytes_per_second DOUBLE,    -- bytes/s | from the GPU over PCIe | GPM, before Hopper DCGM
    pcie_receive_bytes_per_second DOUBLE, -- bytes/s | to the GPU over PCIe | GPM, before Hopper DCGM
    nvlink_send_bytes_per_second DOUBLE,  -- bytes/s | from the GPU over all NVLinks, protocol included | GPM, before Hopper DCGM
    nvlink_receive_bytes_per_second DOUBLE -- bytes/s | to the GPU over all NVLinks, protocol included | GPM, before Hopper DCGM
);

-- Each GPU's power at the driver's own pace, from its buffer.
CREATE TABLE power_samples (
    session_id BIGINT,                    -- | the agent process | agent
    node_id BIGINT,                       -- | the node | agent
    time TIMESTAMP,                       -- UTC | when the driver read it | driver's clock
    device_id BIGINT,                     -- | the GPU | agent
    power_watts DOUBLE                    -- W | power of the whole board; NVML does not say over what time, on an H200 it is instant | NVML samples
);

-- Who holds memory on each GPU; slow lane.
CREATE TABLE gpu_process_samples (
    session_id BIGINT,                    -- | the agent process | agent
    node_id BIGINT,                       -- | the node | agent
    time TIMESTAMP,                       -- UTC | when it was read | agent's wall clock
    device_id BIGINT,                     -- | the GPU | agent
    pid BIGINT,                           -- | the process, as the agent's /proc numbers it, or NVML where it is not found there | NVML, NSpid
    run_id VARCHAR,                       -- | the run it belongs to; NULL: somebody else's, or, where process_count is NULL, not to be told | agent
    pod_uid VARCHAR,                      -- | the Kubernetes pod it runs in (metadata.uid); NULL: in none, or the agent does not share the host's processes | its control group
    container_id VARCHAR,                 -- | its container, as `crictl ps --no-trunc` and `docker ps --no-trunc` show it; NULL as pod_uid | its control group
    memory_used_bytes BIGINT,             -- bytes | device memory it holds; NULL where the driver does not tell | NVML
    utilization_percent DOUBLE,           -- % of time | every 5 s: share of the driver's last period in which kernels of this process ran; NULL between, on MIG, and where not to be told | NVML process utilisation
    memory_utilization_percent DOUBLE     -- % of time | share of the same time in which it read or wrote device memory; not capacity | NVML process utilisation
);

-- Signs of wear of each GPU, which change rarely; slow lane.
CREATE TABLE gpu_health_samples (
    session_id BIGINT,                    -- | the agent process | agent
    node_id BIGINT,                       -- | the node | agent
    time TIMESTAMP,                       -- UTC | when it was read | agent's wall clock
    device_id BIGINT,                     -- | the GPU | agent
    remapped_rows_correctable BIGINT,     -- rows | rows of memory replaced by spare ones for correctable errors, ever; Ampere and newer | NVML
    remapped_rows_uncorrectable BIGINT,   -- rows | rows of memory replaced by spare ones for uncorrectable errors, ever; Ampere and newer | NVML
    retired_pages BIGINT,                 -- pages | pages of memory taken out of use, ever; before Ampere | NVML
    memory_repair_pending BIGINT,         -- | 1: a row or page is known to be bad and in use until the GPU is reset, 0: none | NVML
    memory_repair_failed BIGINT,          -- | 1: a row could not be replaced, 0: none; Ampere and newer | NVML
    pcie_generation BIGINT,               -- | PCIe generation at that time; idle links may rest lower | NVML
    pcie_width BIGINT                     -- lanes | PCIe link width at that time | NVML
);

-- What the driver told of each GPU as it happened.
CREATE TABLE gpu_events (
    session_id BIGINT,                    -- | the agent process | agent
    node_id BIGINT,                       -- | the node | agent
    time TIMESTAMP,                       -- UTC | when the agent looked, at most a second after it happened | agent's wall clock
    device_id BIGINT,                     -- | the GPU | agent
    event VARCHAR,                        -- | xid | NVML events
    number BIGINT,                        -- | which Xid error; 13, 31, 43 and 45 are usually a program's own fault | NVML events
    words VARCHAR                         -- | what it is; NULL: one that is rarely met | NVIDIA's catalogue of Xid errors
);

-- What sampling cost and how well it kept time, one row a source about every 10 s.
CREATE TABLE source_samples (
    session_id BIGINT,                    -- | the agent process | agent
    node_id BIGINT,                       -- | the node | agent
    time TIMESTAMP,                       -- UTC | end of the window that the row describes | agent's wall clock
    source VARCHAR,                       -- | the source | agent
    rate_hz DOUBLE,                       -- Hz | how often it is to be read | agent
    reads BIGINT,                         -- | reads in the window | agent
    failures BIGINT,                      -- | reads that failed | agent
    late_ticks BIGINT,                    -- | ticks that began more than half a period late | agent
    missed_ticks BIGINT,                  -- | ticks that were left out because the one before was not done | agent
    busy_seconds DOUBLE,                  -- s | wall time spent in reads | agent
    error VARCHAR                         -- | the last failure in words; NULL: none | agent
);

-- Stretches without data that should have had some.
CREATE TABLE gaps (
    session_id BIGINT,                    -- | the agent process | agent
    node_id BIGINT,                       -- | the node | agent
    time TIMESTAMP,                       -- UTC | when the gap was noticed | agent's wall clock
    from_time TIMESTAMP,                  -- UTC | the first instant without data | agent's wall clock
    to_time TIMESTAMP,                    -- UTC | the last instant without data | agent's wall clock
    source VARCHAR,                       -- | the source that was silent; NULL: all | agent
    reason VARCHAR,                       -- | spool_full, source_failed, clock_step, rejected, spool_damaged | agent or collector
    messages BIGINT,                      -- | messages that are gone; NULL: not to be told | agent or collector
    detail VARCHAR                        -- | in words | agent or collector
);

-- How far each agent's clock is from the collector's: collector time = agent time + offset.
CREATE TABLE clock_offsets (
    session_id BIGINT,                    -- | the agent process | agent
    node_id BIGINT,                       -- | the node | agent
    time TIMESTAMP,                       -- UTC | when it was estimated | agent's wall clock
    offset_seconds DOUBLE,                -- s | collector's clock less agent's, median of several round trips | probes
    round_trip_seconds DOUBLE             -- s | median round trip; half of it bounds the error | probes
);

-- A run's figures, computed once when it ended, so that comparisons never read samples again.
CREATE TABLE run_metrics (
    run_id VARCHAR,                       -- | the run | collector
    computed_at TIMESTAMP,                -- UTC | a later computation of the same run replaces an earlier one | collector
    metric VARCHAR,                       -- | name of the metric, as in `collector compare --metric` | collector
    value DOUBLE,                         -- see unit | the figure | collector
    unit VARCHAR,                         -- | its unit | collector
    samples BIGINT,                       -- | how many readings it rests on | collector
    mean_value DOUBLE,                    -- see unit | mean over the measured phase; these four NULL where the figure is of nothing that is followed over time | collector
    median_value DOUBLE,                  -- see unit | median over the measured phase, by t-digest: the share of readings below it is right to half a percent | collector
    p95_value DOUBLE,                     -- see unit | 95th percentile over the measured phase, by t-digest: the share of readings below it is right to half a percent | collector
    max_value DOUBLE                      -- see unit | highest reading of the measured phase | collector
);

-- The energy of each of a run's GPUs in each of its phases and steps, computed once when it ended.
CREATE TABLE run_energy (
    run_id VARCHAR,                       -- | the run | collector
    computed_at TIMESTAMP,                -- UTC | a later computation of the same run replaces an earlier one | collector
    node_id BIGINT,                       -- | the node | collector
    device_id BIGINT,                     -- | the GPU | collector
    phase VARCHAR,                        -- | as in run_events; NULL: the whole run. What lies in the measured phase counts to no other | run_events
    step BIGINT,                          -- | number of a measured step; NULL: the whole phase. Only steps of at least ten readings | steps
    seconds DOUBLE,                       -- s | how long it lasted on this node | run_events, steps
    energy_joules DOUBLE,                 -- J | energy of the whole board | see method
    method VARCHAR                        -- | what it was computed from: power_samples, power_instant, power_average_1s, power_polled (either of the two), counter | collector
);

-- What is committed of each session: the highest number counts. Written in the same transaction as the rows.
CREATE TABLE marks (
    session_id BIGINT,                    -- | the session | collector
    number UBIGINT,                       -- | number of a committed message; all before it are committed or dropped | collector
    committed_at TIMESTAMP                -- UTC | when | collector
);

-- Each node as its last session found it.
CREATE VIEW nodes AS
SELECT * FROM sessions
QUALIFY row_number() OVER (PARTITION BY node_id ORDER BY started_at DESC, session_id) = 1;

-- Each GPU as it was last seen.
CREATE VIEW devices AS
SELECT * FROM session_devices
QUALIFY row_number() OVER (PARTITION BY device_id ORDER BY time DESC, session_id) = 1;

-- How each run stands on each of its nodes. What an agent says of an end outranks what the collector concluded.
CREATE VIEW run_parts AS
SELECT
    run_id,                               -- | the run | run_states
    node_id,                              -- | the node; NULL: the nodes that never said anything | run_states
    session_id,                           -- | the agent process that spoke of it last | run_states
    state.status AS status, -- | as in runs, on this node | run_states
    state.exit_code AS exit_code, -- | the program's exit code there, negative for a signal | run_states
    state.reason AS reason, -- | why it did not succeed there | run_states
    started_at,                           -- UTC | when its program started there | run_states
    ended_at,                             -- UTC | when it ended there | run_states
    times                                 -- | how often it was queued there; more than once is wrong | run_states
FROM (
    SELECT
        run_id,
        node_id,
        arg_max(session_id, time) AS session_id,
        -- As one: arg_max passes over NULL, and would give the reason of an earlier state.
        arg_max({'status': status, 'exit_code': exit_code, 'reason': reason}, ranking) AS state,
        min(time) FILTER (status = 'running') AS started_at,
        arg_max(time, ranking) FILTER (status NOT IN ('queued', 'running')) AS ended_at,
        count(*) FILTER (status = 'queued') AS times
    FROM (
        SELECT *, {'stage': CASE status WHEN 'queued' THEN 0 WHEN 'running' THEN 1 WHEN 'lost' THEN 2 ELSE 3 END, 'time': time} AS ranking
        FROM run_states
    )
    GROUP BY run_id, node_id
);

-- Each run: what was asked, and how it stands as a whole. Of several nodes it has succeeded when it has on all of them.
CREATE VIEW runs AS
WITH parts AS MATERIALIZED (
    SELECT *, {'status': status, 'exit_code': exit_code, 'reason': reason} AS state FROM run_parts
), together AS (  -- the runs of several nodes
    SELECT run_id, min({'time': time, 'node_id': node_id}) AS first, max(nodes) AS nodes
    FROM run_requests WHERE nodes > 1 GROUP BY run_id
), whole AS (
    SELECT
        run_id,
        any_value(first) AS first,
        any_value(nodes) AS nodes,
        count(node_id) AS present,
        count(*) FILTER (state.status IN ('queued', 'running')) AS open,
        bool_and(state.status = 'queued') AS waits,
        bool_or(times > 1) AS is_twofold,
        -- A part fails because another was lost or stopped, not the other way: so these tell more.
        arg_max(state, {
            'rank': list_position(['succeeded', 'failed', 'cancelled', 'timed_out', 'lost'], state.status),
            'before': -epoch_us(ended_at)
        }) FILTER (node_id IS NOT NULL) AS worst,
        any_value(state) FILTER (node_id IS NULL) AS missing,
        min(started_at) AS started_at,
        max(ended_at) FILTER (node_id IS NOT NULL) AS ended_at
    FROM together LEFT JOIN parts USING (run_id) GROUP BY run_id
), run AS (
    SELECT request.*, part.state, part.started_at, part.ended_at
    FROM run_requests AS request LEFT JOIN parts AS part
        ON part.run_id = request.run_id AND part.node_id IS NOT DISTINCT FROM request.node_id
    WHERE coalesce(nodes, 1) = 1
    UNION ALL
    SELECT
        request.*,
        CASE
            WHEN open > 0 THEN {'status': if(waits, 'queued', 'running'), 'exit_code': NULL, 'reason': NULL}
            WHEN worst.status <> 'succeeded' THEN worst
            WHEN is_twofold THEN {'status': 'failed', 'exit_code': NULL, 'reason': 'a node took part in it twice: each run needs its own --job'}
            WHEN present >= whole.nodes THEN worst
            ELSE coalesce(missing, {'status': 'running', 'exit_code': NULL, 'reason': NULL})
        END,
        whole.started_at,
        whole.ended_at
    FROM run_requests AS request JOIN whole
        ON whole.run_id = request.run_id AND first = {'time': request.time, 'node_id': request.node_id}
)
SELECT
    run.run_id,                           -- | the run's identity | agent
    run.experiment,                       -- | groups the runs of one question | agent
    session.platform,                     -- | the name the user gave this kind of place | sessions
    run.workload,                         -- | built-in workload, or the command's program | run_requests
    run.environment,                      -- | bare, docker, podman, … | run_requests
    run.image,                            -- | container image; NULL where there is none | run_requests
    run.interference,                     -- | what deliberately ran beside it; 'none' | run_requests
    run.limits,                           -- | what it may use of the node, and changes of that; 'none' | run_requests
    run.repeat,                           -- | number of the repeat, from 1 | run_requests
    run.state.status AS status, -- | queued, running, succeeded, failed, cancelled, timed_out, lost | run_states
    run.state.exit_code AS exit_code, -- | the program's exit code, negative for a signal; of several nodes, where it ended worst | run_states
    run.state.reason AS reason, -- | why it did not succeed | run_states
    run.time AS queued_at,                -- UTC | when it was queued | run_requests
    run.started_at,                       -- UTC | when its program started; of several nodes, the first | run_states
    CASE WHEN run.state.status NOT IN ('queued', 'running') THEN run.ended_at END AS ended_at, -- UTC | when it ended; of several nodes, the last | run_states
    run.parameters,                       -- | the workload's parameters, an object | run_requests
    run.command,                          -- | the program and its arguments, an array; of several nodes, the first's | run_requests
    run.labels,                           -- | the run's labels, an object | run_requests
    run.timeout_seconds,                  -- s | when it would be stopped | run_requests
    coalesce(run.nodes, 1) AS nodes,      -- | how many nodes run it together; run_parts has them | run_requests
    run.session_id,                       -- | the agent process; of several nodes, the first's | run_requests
    run.node_id                           -- | the node it started on; of several, the first | run_requests
FROM run
LEFT JOIN sessions AS session ON session.session_id = run.session_id;

-- The metrics that count: the last computation of each run.
CREATE VIEW metrics AS
SELECT run_id, metric, value, unit, samples, mean_value, median_value, p95_value, max_value FROM run_metrics
QUALIFY computed_at = max(computed_at) OVER (PARTITION BY run_id);

-- The energies that count: the last computation of each run.
CREATE VIEW energy AS
SELECT run_id, node_id, device_id, phase, step, seconds, energy_joules, method FROM run_energy
QUALIFY computed_at = max(computed_at) OVER (PARTITION BY run_id);

-- Why clocks were held, in words, one row a sample of each GPU.
CREATE VIEW gpu_throttling AS
SELECT
    session_id,
    node_id,
    time,
    device_id,
    sm_clock_mhz,
    throttle_reasons,
    throttle_reasons & 236 <> 0 AS held_back, -- | power, heat or hardware held the clocks back | throttle_reasons
    concat_ws(', ',
        CASE WHEN throttle_reasons & 1 <> 0 THEN 'idle' END,
        CASE WHEN throttle_reasons & 2 <> 0 THEN 'application clocks' END,
        CASE WHEN throttle_reasons & 4 <> 0 THEN 'power cap' END,
        CASE WHEN throttle_reasons & 8 <> 0 THEN 'hardware slowdown' END,
        CASE WHEN throttle_reasons & 16 <> 0 THEN 'sync boost' END,
        CASE WHEN throttle_reasons & 32 <> 0 THEN 'software thermal slowdown' END,
        CASE WHEN throttle_reasons & 64 <> 0 THEN 'hardware thermal slowdown' END,
        CASE WHEN throttle_reasons & 128 <> 0 THEN 'power brake' END,
        CASE WHEN throttle_reasons & 256 <> 0 THEN 'display clocks' END
    ) AS reasons                          -- | nvmlClocksEventReason…, comma-separated; '': none | throttle_reasons
FROM gpu_samples
WHERE throttle_reasons IS NOT NULL;
