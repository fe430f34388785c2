#!/usr/bin/env bash
# Does `compare` report differences that do not exist, and those that do? On the first GPU, into one DuckDB file.
#
#   benchmarks/on_gpu/aa.sh [a] [b] [c] [d]          by default a, b and c, in about 9 minutes on one H200
#
# a  twenty pairs of equal settings under two labels (aa.yaml), and how many of them are called different
# b  a difference of about 2 %: GPT with 48 and with 49 equal layers
# c  ResNet-50 twice with equal settings, to be shown equal to within 2 %
# d  ResNet-50 until intervals are 1 % wide: equal settings, and batches of 256 and 259 images
#
# OUT                   folder of runs.duckdb, logs and tables; default: aa-data
# SECONDS_A, SECONDS_D  no repeat of a (330) or d (240) begins that would end later
# TURN, TURN_BCD        seconds that a run of a (0.5) and of the others (2) measures
# LANES_A               groups of a's workloads that are made side by side, such as "resnet50,vgg16 sentiment=rnn,lstm"
# REPEATS_A, B, C, D    repeats: 7, 8, 8, and at most 27
# PARAM                 options for all lanes, such as "--param precision=default"; each lane must have the parameter
#
# Runs start side by side and measure in turns (turns.py): the GPU has one measured process at a time.
# `gpuagent`, `collector` and `python3` are those that have gpuagent.
set -euo pipefail
here=$(dirname "$(readlink -f "$0")")
out=$(readlink -m "${OUT:-aa-data}")
gpu=$(nvidia-smi --query-gpu=uuid --format=csv,noheader 2>/dev/null | head -n 1 || true)
[ -z "$gpu" ] || export CUDA_VISIBLE_DEVICES=$gpu
mkdir -p "$out"
folder=$(mktemp -d) pids=() lanes=()
trap 'kill "${pids[@]}" 2>/dev/null || true; wait; rm -rf "$folder"' EXIT
export GPUAGENT_TURNS=$folder/turns GPUAGENT_TOKEN_FILE=$folder/token

hours() { python3 -c "print($1 / 3600)"; }

# lane NAME FILE REPEATS [OPTIONS OF experiment run]: make an experiment in the background, as a node of its own.
lane() {
  local name=$1 file=$2 repeats=$3 number=$((${#lanes[@]} + 1))
  shift 3
  # shellcheck disable=SC2086  # PARAM is several words
  GPUAGENT_RUNTIME_DIR=$folder/$name-runtime gpuagent experiment run "$file" --name "$name" --repeats "$repeats" \
    --spool "$folder/$name-spool" --node-id "$(printf '00000000-0000-4000-8000-%012d' "$number")" --node-name "lane-$number" \
    --platform one-gpu --rate 1 --force --python "$here/turns.py" --output "$out/$name" ${PARAM:-} "$@" \
    >"$out/$name.log" 2>&1 &
  lanes+=("$name") pids+=($!)
}

# Wait for all lanes, and print what each says last.
finish() {
  local name number=0
  for name in "${lanes[@]}"; do
    number=$((number + 1))
    wait "${pids[number]}" || tail -n 20 "$out/$name.log" >&2
    [ ! -e "$out/$name/answer.md" ] || cat "$out/$name/answer.md"
  done
}

# experiment NAME METRIC FACET SECONDS [WORKLOAD PARAMETERS LABEL]...: write an experiment file and print its path.
experiment() {
  local file=$folder/$1.yaml
  printf 'name: %s\nmetric: %s\nanswer: [compare --by %s]\nbudget: {hours: %s}\nworkloads:\n' "$1" "$2" "$3" "$(hours "$4")" >"$file"
  shift 4
  printf '  - {workload: %s, parameters: {precision: bf16, warmup: 5, trace: false, %s}, labels: {side: %s}}\n' "$@" >>"$file"
  printf %s "$file"
}

# resnet50 BATCH: the rest of its parameters.
resnet50() { printf 'channels-last: true, batch-size: %s' "$1"; }

part_a() {
  local group file names=()
  for group in ${LANES_A:-resnet50 vgg16 resnet18 alexnet sentiment=rnn,lstm sentiment=gru,transformer layer=relu,maxpool layer=conv,linear mnist,cifar10 gcn,gpt}; do
    names+=("aa-$((${#names[@]} + 1))")
    file=$folder/${names[-1]}.yaml
    sed "s/hours: 1/hours: $(hours "${SECONDS_A:-330}")/" "$here/aa.yaml" >"$file"
    [[ $group != *=* ]] || sed -i -E "/workload: ${group%%=*},/ s/(model|layer): \[[a-z, ]*\]/\1: [${group#*=}]/" "$file"
    group=${group%%=*}
    # shellcheck disable=SC2046,SC2086  # an option for each workload
    lane "${names[-1]}" "$file" "${REPEATS_A:-7}" $(printf -- ' --only workload=%s' ${group//,/ })
  done
  finish >"$out/a-tables.md"
  python3 "$here/false_alarms.py" "${names[@]}" | tee "$out/a.txt"
}

part_b() {
  lane two-percent "$(experiment two-percent step_seconds parameter:layers 3600 \
    gpt 'width: 512, heads: 8, batch-size: 16, layers: [48, 49]' a)" "${REPEATS_B:-8}"
}

part_c() {
  lane equal "$(experiment equal throughput label:side 3600 resnet50 "$(resnet50 128)" a resnet50 "$(resnet50 128)" b)" "${REPEATS_C:-8}"
}

part_d() {
  lane one-percent-equal "$(experiment one-percent-equal throughput label:side "${SECONDS_D:-240}" \
    resnet50 "$(resnet50 256)" a resnet50 "$(resnet50 256)" b)" "${REPEATS_D:-27}" --until 1%
  lane one-percent "$(experiment one-percent step_seconds parameter:batch-size "${SECONDS_D:-240}" \
    resnet50 "$(resnet50 '[256, 259]')" a)" "${REPEATS_D:-27}" --until 1%
}

collector serve --listen 127.0.0.1:0 --store "$out/runs.duckdb" --keep never >"$folder/collector.log" 2>&1 &
serving=$!
pids=("$serving")
until GPUAGENT_COLLECTOR=$(grep -om1 '127\.0\.0\.1:[0-9]*' "$folder/collector.log"); do
  kill -0 "$serving" || { cat "$folder/collector.log" >&2; exit 1; }
  sleep 0.1
done
export GPUAGENT_COLLECTOR
asked=" ${*:-a b c} " began=$SECONDS
export GPUAGENT_TURN_SECONDS=${TURN:-0.5}
[[ $asked != *' a '* ]] || part_a
export GPUAGENT_TURN_SECONDS=${TURN_BCD:-2}
for parts in 'b c' d; do
  pids=("$serving") lanes=()
  for part in $parts; do [[ $asked != *" $part "* ]] || "part_$part"; done
  [ ${#lanes[@]} = 0 ] || { finish >"$out/${parts// /}.md" && cat "$out/${parts// /}.md"; }
done
echo "$((SECONDS - began)) s; everything is in $out/runs.duckdb"
