-- The firmware of each node and its GPUs, as each session found it.
CREATE TABLE session_firmware (
    session_id BIGINT,                    -- | the agent process that read it | agent
    node_id BIGINT,                       -- | the node | agent
    time TIMESTAMP,                       -- UTC | when it was read | agent's wall clock
    device_id BIGINT,                     -- | the GPU; NULL: the node's own | agent
    name VARCHAR,                         -- | bios, vbios, gsp | agent
    version VARCHAR                       -- | its version | DMI, NVML
);
