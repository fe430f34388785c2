#!/usr/bin/env bash
# Training on 1, 2 and 4 GPUs (scaling.yaml), then on 4 of which the last has a neighbour: is the straggler found?
#
#   OUT=four-h100 benchmarks/on_gpu/scaling.sh [OPTIONS OF gpuagent experiment run]
#
# OUT, by default scaling-data, has runs.duckdb; the same command resumes what was interrupted. `gpuagent`, `collector` and
# `python3` are those that have gpuagent.
set -euo pipefail
cd "$(dirname "$(readlink -f "$0")")/../.."
out=$(readlink -m "${OUT:-scaling-data}")
mkdir -p "$out"
source benchmarks/on_gpu/collecting.sh
export GPUAGENT_RUNTIME_DIR=$folder/runtime GPUAGENT_SPOOL_DIR=$out/spool
gpuagent experiment run benchmarks/on_gpu/scaling.yaml --output "$out/answer" "$@"
last=$(nvidia-smi --query-gpu=index --format=csv,noheader | tail -n 1)
CUDA_VISIBLE_DEVICES=$last timeout 120 python3 -c '
import torch
side = torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16)
while True:
    for _ in range(100): side @ side
    torch.cuda.synchronize()' &
pids+=($!)
gpuagent run vgg16 --ranks "$((last + 1))" --batch-size 64 --steps 80 --experiment straggler --repeat 2 --deliver-within 30
collector outliers --experiment straggler || true
collector scaling --experiment straggler || true
collector show --workload vgg16 --experiment straggler || true
echo "$SECONDS s; everything is in $out/runs.duckdb"
