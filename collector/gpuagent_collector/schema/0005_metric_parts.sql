-- The figures of single GPUs, ranks and nodes of a run that has several of them, computed once when it ended. A run on one
-- GPU, rank or node has no rows: its figures in run_metrics are those of its only part.
CREATE TABLE run_metric_parts (
    run_id VARCHAR,                       -- | the run | collector
    computed_at TIMESTAMP,                -- UTC | a later computation of the same run replaces an earlier one | collector
    metric VARCHAR,                       -- | name of the metric, as in run_metrics | collector
    part_kind VARCHAR,                    -- | gpu, rank or node: what the figure is of | collector
    part BIGINT,                          -- | device_id, rank or node_id, by part_kind | collector
    value DOUBLE,                         -- see run_metrics.unit | the figure of this part | collector
    max_value DOUBLE                      -- see run_metrics.unit | highest reading of the measured phase; NULL as in run_metrics | collector
);

-- The figures of parts that count: the last computation of each run.
CREATE VIEW metric_parts AS
SELECT run_id, metric, part_kind, part, value, max_value FROM run_metric_parts
QUALIFY computed_at = max(computed_at) OVER (PARTITION BY run_id);
