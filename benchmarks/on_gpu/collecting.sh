# shellcheck shell=bash disable=SC2154  # `out` is of the script
# Sourced with `out`, a folder: starts a collector on its runs.duckdb, which agents and commands find. It ends with the script, and
# so does what the script adds to `pids`; `folder` is for what goes with them.
folder=$(mktemp -d)
export GPUAGENT_TOKEN_FILE=$folder/token
collector serve --listen 127.0.0.1:0 --store "$out/runs.duckdb" --keep never >"$folder/collector.log" 2>&1 &
pids=($!)
trap 'kill "${pids[@]}" 2>/dev/null || true; wait; rm -rf "$folder"' EXIT
until GPUAGENT_COLLECTOR=$(grep -om1 '127\.0\.0\.1:[0-9]*' "$folder/collector.log"); do
  kill -0 "${pids[0]}" || { cat "$folder/collector.log" >&2; exit 1; }
  sleep 0.1
done
export GPUAGENT_COLLECTOR
