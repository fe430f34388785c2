#!/usr/bin/env bash
# VGG-16 on all GPUs of which the last has a neighbour, and on all without, in turns: is the straggler found? Then training on
# 1, 2 and 4 GPUs (scaling.yaml).
#
#   OUT=four-h100 benchmarks/on_gpu/scaling.sh [OPTIONS OF gpuagent experiment run]
#
# OUT, by default scaling-data, has runs.duckdb; `scaling.yaml` resumes where it was interrupted. `gpuagent`, `collector` and
# `python3` are those that have gpuagent.
set -euo pipefail
cd "$(dirname "$(readlink -f "$0")")/../.."
out=$(readlink -m "${OUT:-scaling-data}")
mkdir -p "$out"
source benchmarks/on_gpu/collecting.sh
export GPUAGENT_RUNTIME_DIR=$folder/runtime GPUAGENT_SPOOL_DIR=$out/spool
last=$(nvidia-smi --query-gpu=index --format=csv,noheader | tail -n 1)
training() { # EXPERIMENT RANKS
  gpuagent run vgg16 --ranks "$2" --batch-size 64 --steps 80 --experiment "$1" --deliver-within 30
}
for _ in $(seq "${TURNS:-5}"); do
  training alone 1
  training alone "$((last + 1))"
  CUDA_VISIBLE_DEVICES=$last timeout 120 python3 -c '
import torch
side = torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16)
while True:
    for _ in range(100): side @ side
    torch.cuda.synchronize()' &
  neighbour=$!
  training straggler 1
  training straggler "$((last + 1))"
  kill $neighbour
done
collector scaling vgg16 --experiment alone
collector scaling vgg16 --experiment straggler
gpuagent experiment run benchmarks/on_gpu/scaling.yaml --output "$out/answer" "$@"
echo "$SECONDS s; everything is in $out/runs.duckdb"
