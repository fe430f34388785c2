#!/usr/bin/env bash
# One card's figures on small and large models (cards.yaml), to be compared with those of another card. About 8 minutes on an H100.
#
#   OUT=h100 benchmarks/on_gpu/cards.sh [OPTIONS OF gpuagent experiment run]
#
# OUT, by default cards-data, has runs.duckdb and logs; the same command resumes what was interrupted. On another machine,
# `collector compare h100/runs.duckdb h200/runs.duckdb --by device` compares two of them.
# Runs start side by side and measure in turns (turns.py): the GPU has one measured process at a time. Those that turns.py does
# not know come after the others. `gpuagent`, `collector` and `python3` are those that have gpuagent.
set -euo pipefail
cd "$(dirname "$(readlink -f "$0")")/../.."
out=$(readlink -m "${OUT:-cards-data}")
mkdir -p "$out"
source benchmarks/on_gpu/collecting.sh
export GPUAGENT_TURNS=$folder/turns

# lane NUMBER WORKLOADS [OPTIONS]: make the runs of some workloads in the background, as a node of its own.
lane() {
  local number=$1 words=$2
  shift 2
  # shellcheck disable=SC2046,SC2086  # an option for each workload
  GPUAGENT_RUNTIME_DIR=$folder/runtime-$number gpuagent experiment run benchmarks/on_gpu/cards.yaml \
    --name "cards-$number" --spool "$out/spool-$number" --node-id "lane-$number" --node-name "lane-$number" \
    --platform "${PLATFORM:-this-card}" --force --output "$out/answer-$number" $(printf -- ' --only workload=%s' $words) "$@" \
    >"$out/lane-$number.log" 2>&1 &
  pids+=($!)
}

# finish NUMBER...: wait for lanes, and show the end of what has failed.
finish() {
  local number
  for number in "$@"; do
    wait "${pids[number]}" || tail -n 20 "$out/lane-$number.log" >&2
  done
}

lane 1 "mnist cifar10 gcn" --python "$PWD/benchmarks/on_gpu/turns.py" "$@"
lane 2 "resnet50 bert" --python "$PWD/benchmarks/on_gpu/turns.py" "$@"
lane 3 "llama vit" --python "$PWD/benchmarks/on_gpu/turns.py" "$@"
finish 1 2 3
lane 4 "decode ceilings" "$@"
finish 4
collector compare --by workload --rows device --table throughput,step_seconds,gpu_energy_per_item_joules
echo "$SECONDS s; everything is in $out/runs.duckdb"
