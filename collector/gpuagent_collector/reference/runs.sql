-- Figures of reference runs, a row a run, with six digits. docs/reference/README.md has the command that makes runs.csv.
WITH figures AS (
    PIVOT (
        SELECT run_id, metric, coalesce(round(value, 5 - CAST(floor(log10(abs(nullif(value, 0)))) AS INTEGER)), value) AS value
        FROM metrics
    )
    ON metric IN (
        'throughput', 'step_seconds', 'kernel_seconds_per_step', 'gpu_busy_percent', 'gpu_gap_seconds_per_step',
        'gpu_energy_per_item_joules', 'gpu_power_watts', 'gpu_temperature_celsius', 'sm_clock_mhz',
        'gpu_throttled_percent', 'mfu_percent', 'data_wait_percent', 'dram_active_percent', 'process_cpu_cores',
        'first_report_seconds', 'measure_seconds'
    )
    USING any_value(value)
), boards AS (
    SELECT run_id, count(DISTINCT device_id) AS gpus, string_agg(DISTINCT name, ', ') AS device
    FROM run_devices JOIN session_devices USING (session_id, device_id) GROUP BY ALL
)
SELECT
    run_id, CAST(runs.started_at AS DATE) AS measured_on, sessions.platform AS machine, workload, (
        SELECT string_agg(key || '=' || value, ' ' ORDER BY key)
        FROM (SELECT key, parameters ->> key AS value FROM (SELECT unnest(json_keys(parameters)) AS key))
    ) AS parameters,
    boards.device, gpus, cpu_model, cpu_threads, kernel, driver_version, python_version, (
        SELECT any_value(value_text) FROM results WHERE results.run_id = runs.run_id AND name = 'torch_version'
    ) AS torch_version,
    figures.throughput AS throughput_items_per_second, figures.* EXCLUDE (run_id, throughput)
FROM runs JOIN figures USING (run_id) JOIN boards USING (run_id) JOIN sessions USING (session_id)
WHERE status = 'succeeded' AND figures.throughput IS NOT NULL
ORDER BY workload, parameters, device, machine, runs.started_at
