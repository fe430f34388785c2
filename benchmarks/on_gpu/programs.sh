#!/usr/bin/env bash
# Training programs that know nothing of gpuagent, in two settings and several environments, in turns.
#
#   PROGRAMS_DIR=DIR ENVIRONMENTS="bare apptainer:IMAGE podman:IMAGE" benchmarks/on_gpu/programs.sh [OPTIONS OF gpuagent experiment run]
#
# PROGRAMS_DIR holds the programs of others, unchanged: nanogpt/ with train.py, model.py, configurator.py and
# config/train_shakespeare_char.py of karpathy/nanoGPT; mnist/main.py and imagenet/main.py of pytorch/examples. Ours are
# in programs/. A program that is missing is left out and named; so is matrix.cu without nvcc.
# PROGRAMS="nanogpt trainer" and REPEATS=4 choose a part; for a verdict in each of three environments it takes five
# repeats. PYTHON makes the data: it has numpy and Pillow.
# A collector runs already. In the environments `python3` has torch, torchvision, transformers, lightning and timm.
set -euo pipefail
here=$(dirname "$(readlink -f "$0")")
programs=${PROGRAMS:-nanogpt mnist-example imagenet-example trainer lightning timm matrix}
folder=${FOLDER:-$(mktemp -d)}
[ -n "${FOLDER:-}" ] || trap 'rm -rf "$folder"' EXIT
mkdir -p "$folder"
cp -r "$PROGRAMS_DIR"/. "$here"/programs/* "$folder"

declare -A sizes=(
  [NANOGPT]="--compile=False, --max_iters=250, --eval_iters=10" [MNIST]="--epochs, 1"
  [IMAGENET]="--epochs, 1, --batch-size, 256, --workers, $(($(nproc) < 14 ? $(nproc) : 14))"
  [TRAINER]="--steps, 25" [LIGHTNING]="--steps, 120" [TIMM]="--steps, 40" [MATRIX]="60"
)
data=()
if ! nvidia-smi -L >"$folder/gpus" 2>&1; then
  sizes=(
    [NANOGPT]="--compile=False, --max_iters=20, --eval_iters=1, --device=cpu, --n_layer=1, --n_head=2, --n_embd=32"
    [MNIST]="--epochs, 1" [IMAGENET]="--epochs, 1, --batch-size, 8, --workers, 1"
    [TRAINER]="--steps, 12, --size, tiny, --batch-size, 2, --length, 64"
    [LIGHTNING]="--steps, 20, --width, 8, --batch-size, 16"
    [TIMM]="--steps, 12, --model, resnet18, --batch-size, 4, --side, 64, --workers, 1" [MATRIX]="2"
  )
  data=(--share 0.02)
fi
"${PYTHON:-python3}" "$folder/prepare.py" "$folder" "${data[@]}"

declare -A files=(
  [nanogpt]=nanogpt/train.py [mnist-example]=mnist/main.py [imagenet-example]=imagenet/main.py
  [trainer]=trainer.py [lightning]=lit.py [timm]=timm_loop.py [matrix]=matrix
)
PATH=$PATH:/usr/local/cuda/bin
if [[ " $programs " == *" matrix "* ]] && command -v nvcc >/dev/null; then
  nvcc -O3 -o "$folder/matrix" "$folder/matrix.cu"
fi
only=()
for program in $programs; do
  if [ -e "$folder/${files[$program]}" ]; then
    only+=(--only "workload=$program")
  else
    echo "left out: $program, for which ${files[$program]} is missing" >&2
  fi
done
read -ra environments <<<"${ENVIRONMENTS:-bare}"
listed=$(printf ', "%s"' "${environments[@]}")
changes=(-e "s|ENVIRONMENTS|[${listed#, }]|")
for word in "${!sizes[@]}"; do changes+=(-e "s|\\b$word\\b|${sizes[$word]}|"); done
sed "${changes[@]}" "$here/programs.yaml" >"$folder/programs.yaml"
cd "$folder"
gpuagent experiment run programs.yaml --repeats "${REPEATS:-5}" "${only[@]}" "$@"
