"""Programs with the observing package in front of them, and the same programs without it."""

import ast
import importlib.util
import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

import gpuagent_report
from gpuagent.environments.environment import Job
from gpuagent.runs.events import Digest, EventTailer
from gpuagent.runs.planning import observed
from gpuagent_report.observe import count_items
from tests.support.servers import LIMIT_SECONDS

pytestmark = pytest.mark.slow

PROGRAMS = Path(__file__).resolve().parents[2] / "fixtures/observed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """What is left of a program: what others see of it, and the events."""

    code: int
    stdout: str
    stderr: str
    digest: Digest
    files: list[str]


def run(folder: Path, *program: str, observe: bool, variables: Mapping[str, str] | None = None) -> Ended:
    run_directory = folder / f"run-{observe}"
    run_directory.mkdir()
    work = folder / "work"
    work.mkdir(exist_ok=True)
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"} | dict(variables or {})
    job = Job(
        run_id="a-run",
        program=[sys.executable, *program],
        image=None,
        run_directory=run_directory,
        working_directory=work,
        data=(),
        variables={**environment, "GPUAGENT_RUN_DIR": str(run_directory)},
    )
    if observe:
        job = observed(job)
    done = subprocess.run(
        job.program,
        cwd=work,
        env=dict(job.variables),
        capture_output=True,
        text=True,
        timeout=2 * LIMIT_SECONDS,
        check=False,
    )
    tailer = EventTailer("a-run", run_directory)
    digest = tailer.read_all()
    files = sorted(path.name for path in run_directory.glob("events.*"))
    return Ended(code=done.returncode, stdout=done.stdout, stderr=done.stderr, digest=digest, files=files)


def run_both(folder: Path, *program: str, variables: Mapping[str, str] | None = None) -> Ended:
    """Run a program without and with observation; check that it cannot be told from outside; return the latter."""
    plain, seen = (run(folder, *program, observe=observe, variables=variables) for observe in (False, True))
    assert (seen.code, seen.stdout, seen.stderr) == (plain.code, plain.stdout, plain.stderr)
    assert plain.files == []
    assert seen.digest.complaint is None
    return seen


def test_training_loops_compute_and_print_the_same_and_their_steps_are_known(tmp_path: Path) -> None:
    seen = run_both(tmp_path, str(PROGRAMS / "loop.py"), "fork", "spawn+scaler+compile")
    # The handler of a signal ends it.
    assert seen.code == 7
    # Two trainings have 26 batches each, and three unusual ones 12: a step of several closures each, of three batches,
    # and all but the skipped third. The first step of another optimizer belongs to the step before, as where a step
    # has two.
    assert seen.digest.steps.by_rank[0].steps == 26 + (26 - 1) + (12 - 1) + (4 - 1) + (8 - 1)
    assert str(seen.digest.steps).endswith("ms (observed)")
    assert seen.digest.units["throughput"] == "items/s"
    assert "data_wait_share" in seen.digest.results
    sums = seen.digest.steps.by_rank[0]
    # Each epoch of the first two has 12 batches of 8 and one of 4, and that of the others 12 of 8; five steps warm up.
    assert sums.items is not None
    assert sums.items <= 2 * 200 + 3 * 96 - 5 * 8


@pytest.mark.skipif(importlib.util.find_spec("keras") is None, reason="needs keras: pip install keras")
def test_keras_ends_a_step_with_each_batch(tmp_path: Path) -> None:
    seen = run_both(tmp_path, str(PROGRAMS / "keras_fit.py"), variables={"KERAS_BACKEND": "torch"})
    assert seen.code == 0
    assert seen.digest.steps.by_rank[0].steps == 3 * 8
    assert seen.digest.units["throughput"] == "steps/s"


def test_each_rank_reports_its_own_steps_and_items_add_up(tmp_path: Path) -> None:
    seen = run(tmp_path, str(PROGRAMS / "ranks.py"), str(tmp_path / "meet"), observe=True)
    assert (seen.code, seen.stdout) == (0, "True\n")
    assert seen.files == ["events.0.0.jsonl", "events.1.0.jsonl"]
    assert [sums.steps for sums in seen.digest.steps.by_rank.values()] == [8, 8]
    each = [sums.items / sums.seconds for sums in seen.digest.steps.by_rank.values() if sums.items]
    assert seen.digest.results["throughput"] == pytest.approx(sum(each))


def test_of_two_processes_that_train_the_first_reports_and_once_killed_lacks_the_last_second(tmp_path: Path) -> None:
    seen = run(tmp_path, str(PROGRAMS / "parent.py"), str(PROGRAMS / "killed.py"), observe=True)
    assert seen.stdout == "killed\nkilled\nboth have ended\n"
    assert seen.files == ["events.0.0.jsonl"]
    assert 10 <= seen.digest.steps.by_rank[0].steps <= 100


def test_the_site_s_own_sitecustomize_runs_as_before(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text("print('from the site')")
    program = "import sys; print('sitecustomize' in sys.modules, sys.modules['sitecustomize'].__file__, sys.path)"
    seen = run_both(tmp_path, "-c", program, variables={"PYTHONPATH": str(tmp_path)})
    assert seen.stdout.startswith("from the site\nTrue")


def test_a_program_without_torch_finds_no_trace(tmp_path: Path) -> None:
    seen = run_both(tmp_path, "-c", "import sys; print(sys.path, 'sitecustomize' in sys.modules); 1 / 0")
    assert (seen.code, seen.files) == (1, [])


def test_a_missing_torch_is_missing_as_before(tmp_path: Path) -> None:
    seen = run_both(tmp_path, "-c", "import sys; sys.path = sys.path[:2]; import torch")
    assert "No module named 'torch'" in seen.stderr


def test_a_program_that_reports_itself_is_not_observed_as_well(tmp_path: Path) -> None:
    workloads = str(Path(gpuagent_report.__file__).parents[1])
    seen = run(tmp_path, str(PROGRAMS / "reporting.py"), observe=True, variables={"PYTHONPATH": workloads})
    assert (seen.code, seen.stderr) == (0, "")
    assert "measured steps of " in str(seen.digest.steps)
    assert "observed" not in str(seen.digest.steps)
    assert seen.digest.results["accuracy"] == 12.5


def test_outside_a_run_reports_go_nowhere(tmp_path: Path) -> None:
    workloads = str(Path(gpuagent_report.__file__).parents[1])
    variables = {**os.environ, "PYTHONPATH": workloads}
    variables.pop("GPUAGENT_RUN_DIR", None)
    program = (
        "import gpuagent_report\nwith gpuagent_report.report() as run: run.step(items=5); run.result('accuracy', 12.5)"
    )
    subprocess.run([sys.executable, "-c", program], cwd=tmp_path, env=variables, check=True)
    assert not list(tmp_path.iterdir())


def test_what_runs_in_every_python_is_written_for_old_ones() -> None:
    for path in Path(gpuagent_report.__file__).parent.rglob("*.py"):
        ast.parse(path.read_text(), feature_version=(3, 8))


class Tensor:
    """Has the shape of a tensor."""

    def __init__(self, *shape: int) -> None:
        self.shape = shape


@pytest.mark.parametrize(
    ("batch", "batch_size", "items"),
    [
        (Tensor(8, 3), 8, 8),
        ([Tensor(4, 3), Tensor(4)], 8, 4),
        ({"input_ids": Tensor(16, 128), "labels": Tensor(16)}, 16, 16),
        ((tuple(Tensor(3, 640, 480) for _ in range(2)), ({}, {})), 2, 2),
        (Tensor(32, 3), None, 32),
        (object(), 5, 5),
        (object(), None, None),
    ],
)
def test_samples_of_batches_of_any_shape_are_counted(batch: object, batch_size: int | None, items: int | None) -> None:
    assert count_items(batch, batch_size) == items
