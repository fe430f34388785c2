#!/usr/bin/env bash
# Our Llama server and `transformers serve` on the first GPU, with the same model and load.
#
#   PRESET=1b FOREIGN=PYTHON benchmarks/on_gpu/serving.sh [OPTIONS OF gpuagent experiment run]
#
# FOREIGN is a Python with transformers[serving]; `gpuagent`, `collector` and `python3` are those that have gpuagent.
# A collector runs already; its store is asked at the end (GPUAGENT_STORE).
set -euo pipefail
here=$(dirname "$(readlink -f "$0")")
foreign=${FOREIGN:-python3}
gpu=$(nvidia-smi --query-gpu=uuid --format=csv,noheader 2>/dev/null | head -n 1 || true)
[ -z "$gpu" ] || { set -- --param gpus="$gpu" "$@" && export CUDA_VISIBLE_DEVICES=$gpu; }
folder=$(mktemp -d) servers=()
trap 'kill "${servers[@]}" 2>/dev/null || true; wait; rm -rf "$folder"' EXIT

"$foreign" "$here/llama_folder.py" "${PRESET:-1b}" "$folder/model"
python3 -m gpuagent_workloads serve --model "${PRESET:-1b}" --port 8101 --slots 64 >"$folder/ours.log" 2>&1 &
servers+=($!)
"$(dirname "$foreign")/transformers" serve "$folder/model" --port 8102 --dtype bfloat16 --continuous-batching >"$folder/transformers.log" 2>&1 &
servers+=($!)
for port in 8101 8102; do
  for _ in $(seq 300); do
    curl -fs -o "$folder/health" "http://127.0.0.1:$port/health" && continue 2
    for server in "${servers[@]}"; do kill -0 "$server" || break 2; done
    sleep 1
  done
  tail -n 20 "$folder"/*.log >&2
  exit 1
done
# The first request loads transformers' model, which is no part of what is compared.
for port in 8101 8102; do
  curl -fsS -o "$folder/first" --json "{\"model\": \"$folder/model\", \"max_tokens\": 8, \"messages\": [{\"role\": \"user\", \"content\": \"hello\"}]}" \
    "http://127.0.0.1:$port/v1/chat/completions"
done
sed "s|MODEL|$folder/model|" "$here/serving.yaml" >"$folder/serving.yaml"
gpuagent experiment run "$folder/serving.yaml" "$@"
collector serving --by parameter:server
