#!/usr/bin/env bash
# `collectives` on all GPUs of this machine beside torch's own loop, then `storage` on its disk; within three minutes.
#
#   [RANKS=8] [FOLDER=/scratch] benchmarks/on_gpu/links.sh
#
# `python3` is one that has the workloads. Without GPUs, RANKS processes use gloo. The times are ours and the plain loop's,
# and the goal of their ratio is 0.97 to 1.03 from 16 MiB on.
set -euo pipefail
here=$(dirname "$(readlink -f "$0")")
export PYTHONPATH="$here/../../workloads:$here/../../proto${PYTHONPATH:+:$PYTHONPATH}"
gpus=$(python3 -c 'import torch; print(torch.cuda.device_count())')
ranks=${RANKS:-$((gpus > 0 ? gpus : 2))}
sizes=(65536)
[ "$gpus" = 0 ] || sizes=(1048576 16777216 268435456 1073741824)
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

if [ "$ranks" -gt 1 ]; then
  joined=$(IFS=,; echo "${sizes[*]}")
  GPUAGENT_RUN_DIR=$folder timeout 70 python3 -m gpuagent_workloads run collectives --ranks "$ranks" --sizes "$joined"
  timeout 70 python3 -m torch.distributed.run --standalone --nproc-per-node "$ranks" \
    "$here/plain_collectives.py" "${sizes[@]}" >"$folder/plain.txt"
  python3 "$here/plain_collectives.py" --beside "$folder/events.0.0.jsonl" "$folder/plain.txt"
else
  echo "one GPU: collectives need two" >&2
fi
timeout 40 python3 -m gpuagent_workloads run storage --folder "${FOLDER:-$PWD}" --repeats 2
