-- The metrics that count: the last computation of each run.
CREATE OR REPLACE VIEW metrics AS
SELECT
    computed.run_id,
    metric,
    value,
    coalesce(reported.unit, computed.unit) AS unit, -- | its unit; of a throughput, the one that its run reported | collector
    samples,
    mean_value,
    median_value,
    p95_value,
    max_value
FROM run_metrics AS computed
LEFT JOIN (
    SELECT run_id, any_value(unit) AS unit FROM results WHERE name = 'throughput' GROUP BY run_id
) AS reported ON reported.run_id = computed.run_id AND computed.unit = 'items/s'
QUALIFY computed_at = max(computed_at) OVER (PARTITION BY computed.run_id);
