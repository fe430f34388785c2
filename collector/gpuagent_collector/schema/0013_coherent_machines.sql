-- Machines whose processors reach the memory of GPUs: POWER9 by NVLink, GB10 has one memory for both.
ALTER TABLE session_links ADD COLUMN nvlinks_to_cpus BIGINT; -- | active NVLinks that end at a processor, as on POWER9; NULL: has no NVLink, or not shown | NVML, sysfs
