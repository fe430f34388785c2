#!/usr/bin/env bash
# Our Llama server, `transformers serve` and, if given, vLLM on the first GPU, with the same model and load.
#
#   PRESET=1b FOREIGN=PYTHON VLLM=PYTHON benchmarks/on_gpu/serving.sh [OPTIONS OF gpuagent experiment run]
#
# FOREIGN is a Python with transformers[serving], VLLM one with vLLM; `gpuagent`, `collector` and `python3` are those that
# have gpuagent. VLLM_OPTIONS are further options of vLLM; LOGS is a folder that keeps the servers' output. A collector runs already; its store is asked at the end (GPUAGENT_STORE), with PRICES if given.
set -euo pipefail
here=$(dirname "$(readlink -f "$0")")
foreign=${FOREIGN:-python3}
gpu=$(nvidia-smi --query-gpu=uuid --format=csv,noheader 2>/dev/null | head -n 1 || true)
[ -z "$gpu" ] || { set -- --param gpus="$gpu" "$@" && export CUDA_VISIBLE_DEVICES=$gpu; }
folder=$(mktemp -d) servers=()
trap 'kill -- "${servers[@]}" 2>/dev/null || true; wait; [ -z "${LOGS:-}" ] || cp "$folder"/*.log "$LOGS"; rm -rf "$folder"' EXIT

wait_for() { # PORT
  for _ in $(seq 300); do
    curl -fs -o "$folder/health" "http://127.0.0.1:$1/health" && return
    for server in "${servers[@]}"; do kill -0 "${server#-}" || break 2; done
    sleep 1
  done
  tail -n 20 "$folder"/*.log >&2
  return 1
}

"$foreign" "$here/llama_folder.py" "${PRESET:-1b}" "$folder/model"
python3 -m gpuagent_workloads serve --model "${PRESET:-1b}" --port 8101 --slots 64 >"$folder/ours.log" 2>&1 &
servers+=($!)
ports=(8101 8102)
if [ -n "${VLLM:-}" ]; then
  # In a group of its own, since its engine is a process that outlives a signal to the server alone.
  setsid "$VLLM" -m vllm.entrypoints.openai.api_server --model "$folder/model" --port 8103 --dtype bfloat16 --max-model-len 4096 \
    --gpu-memory-utilization 0.3 --no-enable-prefix-caching ${VLLM_OPTIONS:-} >"$folder/vllm.log" 2>&1 &
  servers+=("-$!")
  ports+=(8103)
  wait_for 8103
fi
wait_for 8101
# vLLM takes a share of the free memory, and transformers all of it, so transformers starts last.
"$(dirname "$foreign")/transformers" serve "$folder/model" --port 8102 --dtype bfloat16 --continuous-batching >"$folder/transformers.log" 2>&1 &
servers+=($!)
wait_for 8102
# The first request loads transformers' model, which is no part of what is compared.
for port in "${ports[@]}"; do
  curl -fsS -o "$folder/first" --json "{\"model\": \"$folder/model\", \"max_tokens\": 8, \"messages\": [{\"role\": \"user\", \"content\": \"hello\"}]}" \
    "http://127.0.0.1:$port/v1/chat/completions"
done
sed "s|MODEL|$folder/model|" "$here/serving.yaml" >"$folder/serving.yaml"
[ -n "${VLLM:-}" ] || sed -i '/server: vllm/d' "$folder/serving.yaml"
gpuagent experiment run "$folder/serving.yaml" "$@"
collector serving --by parameter:server ${PRICES:+--prices "$PRICES"}
