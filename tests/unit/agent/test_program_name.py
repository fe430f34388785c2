"""The name of a user's program: of its script or module, through what starts it."""

import shlex

import pytest

from gpuagent_common.errors import MisuseError
from gpuagent_common.program_name import check_program_name, name_program


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
        ("bash -lc 'python train.py'", "bash-c"),
        ("perl -e 'print 1' x.pl", "perl-e"),
        ("conda run -n lab python train.py", "train.py"),
        ("'/opt/my tools/fit (2)'", "fit__2_"),
        ("sleep 3", "sleep"),
        # Nothing behind the starter is certain.
        ("srun --jobid 4 train", "srun"),
        ("env", "env"),
        ("python -", "python"),
        ("'..'", ".."),
    ],
)
def test_a_program_has_the_name_of_its_script_or_module(command: str, name: str) -> None:
    assert name_program(shlex.split(command)) == name


@pytest.mark.parametrize("name", ["", "my run", "a/b", "x" * 65, "a\nb"])
def test_a_given_name_is_one_that_files_can_have(name: str) -> None:
    with pytest.raises(MisuseError, match="--name takes up to 64 letters"):
        check_program_name(name)


def test_a_long_name_of_a_script_is_cut() -> None:
    assert name_program(["x" * 100]) == "x" * 64
