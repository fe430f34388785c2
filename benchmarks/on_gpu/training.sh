#!/usr/bin/env bash
# Llama 1b in training: eager, checkpointed, compiled, in FP8 and, with two GPUs, by DDP, FSDP2 and tensor parallelism, beside a plain loop.
#
#   benchmarks/on_gpu/training.sh [OPTIONS OF gpuagent experiment run]
#
# `gpuagent`, `collector` and `python3` are those that have gpuagent. A collector runs already (GPUAGENT_COLLECTOR).
set -euo pipefail
cd "$(dirname "$(readlink -f "$0")")/../.."
# Cells that cannot run here, such as FP8 without torchao or on an older GPU, fail; the others still have their table.
status=0
gpuagent experiment run benchmarks/on_gpu/training.yaml "$@" || status=$?
echo "Throughput by that of the plain loop, medians:"
collector query sql "
  WITH medians AS (
    SELECT (labels->>'setting') AS setting, median(value) AS throughput
    FROM metrics JOIN runs USING (run_id)
    WHERE metric = 'throughput' AND (labels->>'setting') IS NOT NULL AND experiment = (
      SELECT experiment FROM runs WHERE workload = 'plain-llama' ORDER BY started_at DESC LIMIT 1)
    GROUP BY ALL)
  SELECT setting, throughput, throughput / (SELECT throughput FROM medians WHERE setting = 'plain') AS ratio FROM medians"
exit $status
