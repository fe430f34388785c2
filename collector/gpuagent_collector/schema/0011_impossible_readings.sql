-- Readings beyond physical limits, which are NULL in their tables: one row a quantity and source about every 10 s.
CREATE TABLE impossible_readings (
    session_id BIGINT,                    -- | the agent process that read them | agent
    node_id BIGINT,                       -- | the node | agent
    time TIMESTAMP,                       -- UTC | when the last of them was read | agent's wall clock
    from_time TIMESTAMP,                  -- UTC | when the first of them was read | agent's wall clock
    source VARCHAR,                       -- | the source that read them; NULL: a fact or report, or found by the collector in a message | agent or collector
    quantity VARCHAR,                     -- | table and column, as gpu_samples.power_watts | agent or collector
    readings BIGINT,                      -- | how many were dropped | agent or collector
    value DOUBLE                          -- see quantity | the last of them | agent or collector
);
