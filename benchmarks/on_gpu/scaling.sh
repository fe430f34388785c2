#!/usr/bin/env bash
# VGG-16 on 4 GPUs of which the last has a neighbour, is the straggler found? Then training on 1, 2 and 4 GPUs (scaling.yaml).
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
last=$(nvidia-smi --query-gpu=index --format=csv,noheader | tail -n 1)
straggling() { # EXPERIMENT
  gpuagent run vgg16 --ranks "$((last + 1))" --batch-size 64 --steps 80 --experiment "$1" --repeat 2 --deliver-within 30
}
straggling alone
CUDA_VISIBLE_DEVICES=$last timeout 120 python3 -c '
import torch
side = torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16)
while True:
    for _ in range(100): side @ side
    torch.cuda.synchronize()' &
neighbour=$!
straggling straggler
kill $neighbour
for answer in "compare alone straggler --by experiment" "outliers --experiment straggler" "show --workload vgg16 --experiment straggler"; do
  # shellcheck disable=SC2086  # words of a command
  collector $answer || true
done
gpuagent experiment run benchmarks/on_gpu/scaling.yaml --output "$out/answer" "$@"
echo "$SECONDS s; everything is in $out/runs.duckdb"
