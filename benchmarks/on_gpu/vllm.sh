#!/usr/bin/env bash
# What serve-load says of vLLM on the first GPU: hits of its prefix cache, the same answers or not, the highest load
# beside vLLM's and aiperf's own clients, and two settings for agents.
#
#   OUT=DIR VLLM='PYTHON -m vllm.entrypoints.openai.api_server' PARTS='prefix answers find others settings' benchmarks/on_gpu/vllm.sh [OPTIONS OF gpuagent experiment run]
#
# `gpuagent`, `collector` and `python3` are those that have gpuagent; FOREIGN is a Python with transformers. BENCH is vLLM's
# client ('PYTHON -m vllm.entrypoints.cli.main bench serve'), AIPERF aiperf ('PYTHON -m aiperf'); without one, `others` leaves it out.
# VLLM_OPTIONS are further options of every server, PRESET is its model. Each part has its texts in OUT/PART.txt, ends its servers (`find` leaves them to `others`), and stops no
# other; runs are in OUT/runs.duckdb. Where a call's time is short, PARTS=start leaves the server of `find` and `others` to later calls with USERS_URL; MODELS is their folder.
set -uo pipefail
options=("$@")
here=$(dirname "$(readlink -f "$0")")
out=$(readlink -f "${OUT:?a folder for results}")
# shellcheck source=benchmarks/on_gpu/collecting.sh
source "$here/collecting.sh"
# shellcheck disable=SC2154  # `folder` and `pids` are of collecting.sh
export GPUAGENT_RUNTIME_DIR=$folder/runtime GPUAGENT_SPOOL_DIR=$folder/spool
foreign=${FOREIGN:-python3} servers=()
read -ra more <<<"${VLLM_OPTIONS:-}"
read -ra vllm <<<"${VLLM:-python3 -m vllm.entrypoints.openai.api_server}"
gpu=$(nvidia-smi --query-gpu=uuid --format=csv,noheader 2>/dev/null | head -n 1 || true)
models=${MODELS:-$folder/models}
trap 'stop_servers; kill "${pids[@]}" 2>/dev/null || true; wait; rm -rf "$folder"' EXIT

serve() { # NAME PORT MODEL OPTIONS: in a group of its own, since its engine outlives a signal to the server alone
  local name=$1 port=$2 model=$3
  shift 3
  setsid "${vllm[@]}" --model "$model" --served-model-name llama --port "$port" --dtype bfloat16 --gpu-memory-utilization 0.2 \
    "${more[@]}" "$@" >"$out/$part-$name.log" 2>&1 &
  servers+=("$!")
}

ready() { # PORT...
  local port server
  for port in "$@"; do
    until curl -fs -m 5 -o "$folder/health" "http://127.0.0.1:$port/health"; do
      for server in "${servers[@]}"; do
        kill -0 "$server" 2>/dev/null || { echo "a server ended:"; tail -n 5 "$out/$part"-*.log; return 1; }
      done
      [ $((SECONDS - began)) -lt "${READY_SECONDS:-240}" ] || { echo "port $port is not ready"; return 1; }
      sleep 1
    done
  done
  echo "ready after $((SECONDS - began)) s"
}

stop_servers() {
  local server
  for server in "${servers[@]}"; do kill -- "-$server" 2>/dev/null; done
  for _ in $(seq 20); do
    kill -0 "${servers[@]/#/-}" 2>/dev/null || break
    sleep 0.5
  done
  for server in "${servers[@]}"; do kill -KILL -- "-$server" 2>/dev/null; done
  servers=() users_url=
}

experiment() { # NAME SECONDS, the file at stdin
  cat >"$folder/$1.yaml"
  timeout "$2" gpuagent experiment run "$folder/$1.yaml" --output "$folder/answer-$1" --deliver-within 30 "${options[@]}" ${gpu:+--param gpus="$gpu"} >"$folder/$1.log" 2>&1 ||
    { echo "experiment $1 ended with $?"; tail -n 15 "$folder/$1.log"; }
}

show() { # a command whose answer is kept with it
  echo "\$ $*"
  timeout 60 "$@" 2>&1 || echo "(ended with $?)"
  echo
}

model() { # [OPTIONS OF llama_folder.py]: the random model, written once
  [ -d "$models/random" ] || timeout 180 "$foreign" "$here/llama_folder.py" "${PRESET:-1b}" "$models/random" 2>&1 | tail -n 1
}

measure_prefix() {
  model
  serve vllm 8111 "$models/random" --max-model-len 4096 --enable-prefix-caching
  ready 8111 || return
  experiment prefix 240 <<YAML
name: prefix
question: Does the server find the share of the prompts that is asked for in its cache?
metric: server_prefix_hit_percent
repeats: 2
workloads:
  - workload: serve-load
    parameters: {url: "http://127.0.0.1:8111", shared-prefix: [0, 0.5, 0.9], rate: 8, input: 2048, output: 16, duration: ${SECONDS_EACH:-15}, warmup: 4}
YAML
  show collector compare --experiment prefix --by parameter:shared-prefix --metric server_prefix_hit_percent
}

measure_answers() {
  timeout 150 "$foreign" "$here/llama_folder.py" "${LEARNER:-60m}" "$models/learned" --shuffled "$models/shuffled" \
    --train "${LEARN_SECONDS:-40}" "$here"/../../docs/*.md 2>&1 | grep -a -e loss -e Error
  began=$SECONDS
  local usual=(--max-model-len 2048 --kv-cache-memory-bytes 2147483648 --enforce-eager)
  serve bf16 8121 "$models/learned" "${usual[@]}"
  serve again 8122 "$models/learned" "${usual[@]}"
  serve fp8 8123 "$models/learned" "${usual[@]}" --quantization fp8
  serve shuffled 8124 "$models/shuffled" "${usual[@]}"
  ready 8121 8122 8123 8124 || return
  curl -s -m 60 --json '{"model": "llama", "prompt": "The agent measures", "max_tokens": 60, "temperature": 0}' http://127.0.0.1:8121/v1/completions
  echo
  experiment answers 240 <<YAML
name: answers
question: Do these servers answer the same?
metric: ttft_p90_seconds
repeats: 2
workloads:
  - workload: serve-load
    parameters: &usual {server: bf16, url: "http://127.0.0.1:8121", answers: ${ANSWERS:-64}, rate: 4, input: 128, output: 16, duration: 4, warmup: 1, slo-ttft: 200}
  - {workload: serve-load, parameters: {<<: *usual, server: again, url: "http://127.0.0.1:8122"}}
  - {workload: serve-load, parameters: {<<: *usual, server: fp8, url: "http://127.0.0.1:8123"}}
  - {workload: serve-load, parameters: {<<: *usual, server: shuffled, url: "http://127.0.0.1:8124"}}
YAML
  show collector serving --experiment answers --by parameter:server --baseline bf16
  show collector compare --experiment answers --by parameter:server --baseline bf16 --metric ttft_p90_seconds
}

serve_users() { # the server of `find` and `others`, unless USERS_URL is one that runs already
  [ -z "${users_url:=${USERS_URL:-}}" ] || return 0
  # Sixty-four places: beyond them users wait, so the time to the first token has a limit of users that is the server's own.
  # Tokens come in packets of eight, or a client of one process would be slower than the server.
  serve vllm 8131 "$models/random" --max-model-len 2048 --max-num-seqs "${SEATS:-64}" --no-enable-prefix-caching --stream-interval 8
  ready 8131 && users_url=http://127.0.0.1:8131
}

measure_start() { # leaves that server to a later call of this script, with USERS_URL and the same MODELS
  model
  serve_users || return
  echo "$users_url by process group ${servers[*]}"
  disown "${servers[@]}" # else the end of this script would wait for it
  servers=()
}

# All three clients: a closed loop of N users, prompts of 256 tokens and answers of 64 to 192, evenly spread. With one length for
# all, users that begin together would stay together. A load is kept if TTFT p95 is within the limit, after a warm-up.
measure_find() {
  model
  serve_users || return
  search_ours find
  if [ -n "${AIPERF:-}" ]; then search_aiperf; fi
}

measure_others() {
  model
  serve_users || return
  if [ -n "${BENCH:-}" ]; then search_bench; fi
  search_ours again
}

# Where the others search: about what ours found, from three quarters of it to five quarters.
fewest=${FEWEST_USERS:-48} most=${MOST_USERS:-96}

search_ours() { # NAME
  local found began=$SECONDS
  experiment "$1" "${FIND_SECONDS:-230}" <<YAML
name: $1
question: How many users does the server take within the limit?
metric: highest_concurrency
repeats: 1
workloads:
  - workload: serve-load
    parameters: {url: "$users_url", find: concurrency, concurrency: ${USERS:-72}, find-step: 2, find-windows: ${WINDOWS:-26}, slo-ttft: ${LIMIT_MS:-100}, slo-percent: 95, input: 256, output: "uniform:64:192", duration: ${SECONDS_EACH:-4}, warmup: ${WARMUP_SECONDS:-2}, seed: $RANDOM}
YAML
  grep -rah "serve-load: window" "$folder" | sort -u -t: -k2V
  show collector query sql "SELECT name, value FROM results JOIN runs USING (run_id) WHERE experiment = '$1' AND (name LIKE 'highest_%' OR name LIKE 'search_%') ORDER BY name"
  show collector serving --experiment "$1"
  found=$(collector query sql --json "SELECT round(value)::INT AS users FROM results JOIN runs USING (run_id) WHERE experiment = '$1' AND name = 'highest_concurrency'" 2>/dev/null | grep -om1 '[0-9]\+')
  echo "ours: $found users, $((SECONDS - began)) s"
  case $found in
    "" | *[!0-9]*) ;;
    *) fewest=$((found * 3 / 4)) most=$((found * 5 / 4 + 1)) ;;
  esac
}

search_aiperf() {
  local aiperf began=$SECONDS
  read -ra aiperf <<<"$AIPERF"
  # Each load of its search warms up, ends that, and begins anew: by a ramp, since its first requests would else wait for one another.
  # Offline it takes a folder for the name of a repository.
  AIPERF_SEARCH_PLANNER_SLA_PRECISION_DEFAULT=0.02 timeout "${AIPERF_SECONDS:-360}" env -u HF_HUB_OFFLINE -u TRANSFORMERS_OFFLINE "${aiperf[@]}" profile --model llama --url "$users_url" --endpoint-type completions --streaming \
    --tokenizer "$models/random" --isl 256 --osl 128 --random-range-ratio '{"input": 0.0, "output": 0.5}' --extra-inputs ignore_eos:true \
    --search-recipe max-concurrency-under-sla --search-style monotonic --ttft-sla-ms "${LIMIT_MS:-100}" --concurrency-min "$fewest" --concurrency-max "$most" \
    --benchmark-duration "${AIPERF_SECONDS_EACH:-6}" --concurrency-ramp-duration 1 --warmup-request-count 64 --workers-max 4 --no-server-metrics --no-gpu-telemetry \
    --artifact-dir "$folder/aiperf" --ui none >"$out/$part-aiperf.log" 2>&1 || echo "aiperf ended with $?"
  find "$folder/aiperf" -name search_history.json -exec cp {} "$out/" \;
  python3 - "$folder/aiperf" <<'PYTHON' || tail -n 20 "$out/$part-aiperf.log"
import json, pathlib, sys

folder = pathlib.Path(sys.argv[1])
history = json.loads((folder / "search_history.json").read_text())
p95 = {}
for file in folder.glob("**/search_iter_*/**/profile_export_aiperf.json"):
    number = next(part for part in file.parts if part.startswith("search_iter_"))
    p95[int(number.removeprefix("search_iter_"))] = json.loads(file.read_text())["time_to_first_token"]["p95"]
for tried in history["iterations"]:
    users = tried["variation_values"]["phases.profiling.concurrency"]
    print(f"aiperf: {users} users, TTFT p95 {p95.get(tried['iteration_idx'])} ms, keeps the limit: {tried['feasible']}")
print("aiperf:", json.dumps(history["boundary_summary"]), history["convergence_reason"])
PYTHON
  echo "aiperf: from $fewest to $most users, $((SECONDS - began)) s"
}

search_bench() { # by halving, with four new users a second for each user, until all are there
  local low=$fewest high=$most users p95 bench began=$SECONDS
  read -ra bench <<<"$BENCH"
  while [ $((high - low)) -gt 1 ] && [ $((SECONDS - began)) -lt "${BENCH_SECONDS:-200}" ]; do
    users=$(((low + high) / 2))
    timeout 90 "${bench[@]}" --base-url "$users_url" --model llama --tokenizer "$models/random" --dataset-name random --random-input-len 256 --random-output-len 128 \
      --random-range-ratio '{"input": 0.0, "output": 0.5}' --ignore-eos --max-concurrency "$users" --request-rate $((4 * users)) --num-prompts $((users * ${ROUNDS:-12})) --num-warmups "$users" \
      --seed "$RANDOM" --percentile-metrics ttft --metric-percentiles 95 --save-result --result-dir "$folder" --result-filename bench.json >"$out/$part-bench.log" 2>&1 ||
      { tail -n 5 "$out/$part-bench.log"; break; }
    p95=$(python3 -c 'import json, sys; print(json.load(open(sys.argv[1]))["p95_ttft_ms"])' "$folder/bench.json")
    echo "vLLM's client: $users users, TTFT p95 $p95 ms"
    if python3 -c 'import sys; sys.exit(float(sys.argv[1]) > float(sys.argv[2]))' "$p95" "${LIMIT_MS:-100}"; then low=$users; else high=$users; fi
  done
  echo "vLLM's client: $low users keep the limit, $high do not; from $fewest to $most users, $((SECONDS - began)) s"
}

measure_settings() {
  stop_servers
  model
  # Agents: contexts that grow by 1,024 tokens a turn to 6,300, and short answers.
  local usual=(--max-model-len 8192 --max-num-seqs 64 --enable-prefix-caching --kv-cache-memory-bytes 17179869184)
  serve small-steps 8141 "$models/random" "${usual[@]}" --max-num-batched-tokens 512
  serve whole-prompts 8142 "$models/random" "${usual[@]}" --max-num-batched-tokens 8192 --no-enable-chunked-prefill
  ready 8141 8142 || return
  experiment settings 330 <<YAML
name: settings
question: Which of two settings of vLLM serves agents better, and because of what?
metric: tpot_p90_seconds
repeats: ${REPEATS:-6}
workloads:
  - workload: serve-load
    parameters: &usual {server: small-steps, url: "http://127.0.0.1:8141", concurrency: [16, 48], turns: 6, think: 0.2, input: ${TURN:-1024}, output: 32, duration: ${SECONDS_EACH:-6}, warmup: 3, slo-tpot: 20}
  - {workload: serve-load, parameters: {<<: *usual, server: whole-prompts, url: "http://127.0.0.1:8142"}}
YAML
  show collector serving --experiment settings --by parameter:server
  show collector compare --experiment settings --by parameter:server --metric tpot_p90_seconds
  show collector compare --experiment settings --by parameter:server --metric ttft_p90_seconds
  show collector compare --experiment settings --by parameter:server --all
  timeout 60 collector plot serving --experiment settings --by parameter:server -o "$out/settings.svg" || true
}

for part in ${PARTS:-prefix answers find others settings}; do
  began=$SECONDS
  echo "== $part"
  # Straight into the file, so that an end in the midst of it leaves what was found.
  { "measure_$part" || echo "$part failed"; [ "$part" = find ] || stop_servers; echo "$part took $((SECONDS - began)) s"; } >"$out/$part.txt" 2>&1
  cat "$out/$part.txt"
done
