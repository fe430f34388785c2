#!/usr/bin/env bash
# `collectives` on all GPUs of this machine and torch's own loop in turns. Seven turns of the two sizes below took
# less than three minutes on two H200.
#
#   [RANKS=8] [TURNS=5] [SIZES='1048576 16777216'] benchmarks/on_gpu/links.sh
#
# `python3` is one that has the workloads. Without GPUs, RANKS processes use gloo. The times are ours and the plain loop's,
# and the goal of their ratio is 0.97 to 1.03 from 16 MiB on.
set -euo pipefail
here=$(dirname "$(readlink -f "$0")")
export PYTHONPATH="$here/../../workloads:$here/../../proto${PYTHONPATH:+:$PYTHONPATH}"
gpus=$(python3 -c 'import torch; print(torch.cuda.device_count())')
ranks=${RANKS:-$((gpus > 0 ? gpus : 2))}
if [ "$gpus" = 0 ]; then usual=65536; else usual='1048576 16777216 268435456 1073741824'; fi
read -ra sizes <<<"${SIZES:-$usual}"
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

if [ "$ranks" -gt 1 ]; then
  joined=$(IFS=,; echo "${sizes[*]}")
  for turn in $(seq "${TURNS:-5}"); do
    mkdir "$folder/$turn"
    GPUAGENT_RUN_DIR=$folder/$turn timeout 70 python3 -m gpuagent_workloads run collectives --ranks "$ranks" --sizes "$joined"
    timeout 70 python3 -m torch.distributed.run --standalone --nproc-per-node "$ranks" \
      "$here/plain_collectives.py" "${sizes[@]}" >"$folder/$turn/plain.txt"
  done
  python3 "$here/plain_collectives.py" --beside "$folder"
else
  echo "one GPU: collectives need two" >&2
fi
