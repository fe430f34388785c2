-- Machines whose processors and GPUs reach each other's memory: POWER9 by NVLink; GB10 has one memory for both.
ALTER TABLE session_links ADD COLUMN nvlinks_to_cpus BIGINT; -- | active NVLinks that end at a processor, as on POWER9; NULL: has no NVLink, or not shown | NVML, sysfs
ALTER TABLE session_devices ADD COLUMN memory_kind VARCHAR; -- | system: the GPU shares the node's memory, and figures of its memory are the node's; NULL: it has its own | NVML

-- Each GPU as it was last seen.
CREATE OR REPLACE VIEW devices AS
SELECT * FROM session_devices
QUALIFY row_number() OVER (PARTITION BY device_id ORDER BY time DESC, session_id) = 1;
