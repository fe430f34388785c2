"""The name of a user's program: of its script or module, through what starts it."""

import shlex

import pytest

from gpuagent_common.errors import MisuseError
from gpuagent_common.program_name import check_program_name, find_step_size, name_program


@pytest.mark.parametrize(
    ("command", "name"),
    [
        ("python train.py config/gpt2.py --dtype=bfloat16", "train.py"),
        ("/home/a/venv/bin/python3.11 -u -W ignore /x/train.py b.py", "train.py"),
        ("python -m pkg.mod --epochs 3", "pkg.mod"),
        ("python -c 'print(1)' train.py", "python-c"),
        ("torchrun --standalone --nproc_per_node 8 train.py --x b.py", "train.py"),
        ("torchrun --nnodes=2 -m pkg.train", "pkg.train"),
        ("python -m torch.distributed.run --nproc-per-node=2 train.py", "train.py"),
        ("accelerate launch --config_file conf.yaml run_glue.py", "run_glue.py"),
        ("env -u HOME A=1 STARTUP=x.py python -u train.py", "train.py"),
        ("env A=1 ./tool data.py", "tool"),
        ("nohup ./train --x", "train"),
        ("nice -n 19 timeout 60 python train.py", "train.py"),
        ("timeout 60 ./train data.py", "train"),
        ("srun -n 4 --gpus 1 python train.py", "train.py"),
        ("srun a.out", "a.out"),
        ("bash -e run.sh", "run.sh"),
        ("bash run.sh x", "run.sh"),
        ("bash -lc 'python train.py'", "train.py"),
        ("bash -c 'cd /x && source venv/bin/activate; A=1 exec python -u train.py > log 2>&1'", "train.py"),
        ("bash -c 'python train.py | tee log'", "train.py"),
        ("bash -c 'python prepare.py && python train.py'", "bash-c"),
        ("bash -c 'for i in 1 2; do python train.py; done'", "bash-c"),
        ("bash -c '$TOOL train.py'", "bash-c"),
        ("perl -e 'print 1' x.pl", "perl-e"),
        ("conda run -n lab python train.py", "train.py"),
        ("'/opt/my tools/fit (2)'", "fit__2_"),
        ("sleep 3", "sleep"),
        ("srun --jobid 4 train", "train"),
        ("srun -n4 -l --mpi=pmix ./a.out", "a.out"),
        ("mpirun -np 4 --mca btl tcp,self -x PATH --bind-to core ./a.out 8", "a.out"),
        ("mpirun --allow-run-as-root -np 2 python train.py", "train.py"),
        ("deepspeed --num_gpus 2 train.py", "train.py"),
        ("torchrun -m --nproc-per-node 2 pkg/train.py", "train.py"),
        # Environments of Python.
        ("pixi run python train.py", "train.py"),
        ("pixi run -e cuda train", "train"),
        ("mamba run -n lab python train.py", "train.py"),
        ("micromamba run -p /opt/lab --cwd /x python train.py", "train.py"),
        ("pdm run train.py", "train.py"),
        ("poetry -C app run train", "train"),
        ("pipenv run python train.py", "train.py"),
        ("uv run --with torch --python 3.12 train.py", "train.py"),
        ("uv run -m pkg.train", "pkg.train"),
        ("uvx --from lab tool --x", "tool"),
        ("uv tool run tool --x", "tool"),
        # The system's.
        ("sudo -E -u lab A=1 python train.py", "train.py"),
        ("taskset -c 0-3 ./train data.py", "train"),
        ("numactl -N 0 --membind=0 train", "train"),
        ("stdbuf -oL train", "train"),
        ("env -i A=1 nice -n 5 time -v ./train", "train"),
        # Containers.
        ("docker run --rm -it --gpus all -v /a:/b -e A=1 registry/lab/torch:2.1 python train.py", "train.py"),
        ("docker run --entrypoint python torch:2.1 train.py", "train.py"),
        ("docker run --gpus all vllm/vllm-openai:v1 --model x", "vllm-openai_v1"),
        ("docker --context far container run torch:2.1 ./train", "train"),
        ("docker exec -i box python train.py", "train.py"),
        ("docker build .", "docker"),
        ("podman run --rm torch bash -c 'python train.py'", "train.py"),
        ("apptainer exec --nv -B /data torch.sif python train.py", "train.py"),
        ("apptainer run --nv lab.sif", "lab.sif"),
        ("singularity exec --nv torch.sif torchrun train.py", "train.py"),
        # Profilers and debuggers.
        ("nsys profile -o out -t cuda,nvtx --stats=true ./train", "train"),
        ("nsys profile python train.py", "train.py"),
        ("nsys stats out.nsys-rep", "nsys"),
        ("ncu -f --set full -o out python train.py", "train.py"),
        ("ncu --nvtx ./train", "train"),
        ("perf stat -e cycles ./train", "train"),
        ("py-spy record -o out.svg -- python train.py", "train.py"),
        ("valgrind --tool=callgrind ./train", "train"),
        ("strace -f -o out ./train", "train"),
        ("gdb -batch -ex run --args python train.py", "train.py"),
        ("coverage run --source pkg train.py", "train.py"),
        ("python -m cProfile train.py", "train.py"),
        ("python -m cProfile -o out.prof -m pkg.train", "pkg.train"),
        ("python -m pdb -c continue train.py", "train.py"),
        ("python -m coverage run train.py", "train.py"),
        # Nothing behind the starter is a program.
        ("env", "env"),
        ("python -", "python"),
        ("'..'", ".."),
    ],
)
def test_a_program_has_the_name_of_its_script_or_module(command: str, name: str) -> None:
    assert name_program(shlex.split(command)) == name


@pytest.mark.parametrize("name", ["", "my run", "a/b", "x" * 65, "a\nb"])
def test_a_given_name_is_one_that_files_can_have(name: str) -> None:
    with pytest.raises(MisuseError, match="--name takes"):
        check_program_name(name)


def test_long_names_of_scripts_are_cut_and_stay_different() -> None:
    first, second = (name_program([f"{'x' * 100}{end}"]) for end in "ab")
    assert first != second
    assert first.startswith("x" * 55)
    assert check_program_name(first) == first


@pytest.mark.parametrize(
    ("commands", "option"),
    [
        (("train --batch_size=1", "train --batch_size=2"), "batch-size"),
        (("train --bs 1 --lr 1", "train --bs 1 --lr 2"), ""),
        (("train --bs 1", "train --bs 2", "train"), ""),
        (("train --bs 1", "train --bs auto"), ""),
        ((), ""),
    ],
)
def test_the_size_of_steps_is_an_option_that_counts_those_of_each_command(
    commands: tuple[str, ...], option: str
) -> None:
    assert find_step_size(map(shlex.split, commands)) == option
