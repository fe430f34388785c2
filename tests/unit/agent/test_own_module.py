"""Small parts: modules of ours, what is waited for, clocks, and commands as they are recorded."""

import ast
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpuagent.clock import SystemClock
from gpuagent.runs.catalogue import Catalogue, ask
from gpuagent.runs.planning import Planner
from gpuagent.runs.recording import RunRecorder, shorten_command
from gpuagent.sampling.rows import RecordBuffer, Row
from gpuagent_common.clocks import describe_offset, is_clock_wrong
from gpuagent_common.own_module import SAFE_PATH, module_command
from gpuagent_common.waiting import waiting_for
from gpuagent_proto.v1.run_pb2 import RunSpec
from tests.support.servers import until

ROOT = Path(__file__).parents[3]

# Starts another Python, as data loaders and trials do.
_STARTS_ANOTHER = """
import multiprocessing, os, sys

def work():
    print("child")

if __name__ == "__main__":
    print(__spec__.name, *sys.argv[1:], os.environ["PYTHONSAFEPATH"], flush=True)
    child = multiprocessing.get_context("spawn").Process(target=work)
    child.start()
    child.join()
    sys.exit(child.exitcode)
"""


@pytest.fixture
def hostile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Start in a folder whose modules end the process that imports them with code 66."""
    folder = tmp_path / "hostile"
    names = ("gpuagent_workloads", "gpuagent_common", "mine", "runpy", "multiprocessing", "json", "click", "torch")
    for name in names:
        (folder / name).mkdir(parents=True)
        for file in ("__init__.py", "__main__.py"):
            (folder / name / file).write_text("import os; os._exit(66)")
    monkeypatch.chdir(folder)
    return folder


@pytest.mark.skipif(sys.version_info < (3, 11), reason="this Python cannot keep its children out of the folder")
@pytest.mark.usefixtures("hostile")
def test_neither_a_module_nor_the_pythons_that_it_starts_import_from_there(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(_STARTS_ANOTHER)
    command = [*module_command(sys.executable, "mine"), "a", "-m"]
    done = subprocess.run(
        command, env={**os.environ, "PYTHONPATH": str(tmp_path)}, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout.split()) == (0, ["mine", "a", "-m", SAFE_PATH[1], "child"]), done.stderr


@pytest.mark.usefixtures("hostile")
def test_the_agent_s_questions_and_its_runs_are_answered_by_its_own_workloads() -> None:
    assert '"cpu-burn"' in ask(sys.executable, as_json=True, names=["cpu-burn"])
    catalogue = Catalogue(sys.executable)
    mnist = catalogue.find("mnist")
    for command in (catalogue.program(mnist, {"steps": "none"}), [*catalogue.preparation(mnist, None, []), "--help"]):
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode in (0, 2), (command, done)


@pytest.mark.usefixtures("hostile")
def test_a_module_that_is_missing_is_an_error_in_one_line() -> None:
    done = subprocess.run(module_command(sys.executable, "mine.not"), capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr.count("\n")) == (1, 1)
    assert "No module named" in done.stderr


def test_a_store_has_the_command_as_people_type_it() -> None:
    request: dict[str, str] = {}

    class Buffer(RecordBuffer):
        def add_record(self, table: str, row: Row) -> None:
            request.update(command=str(row["command"]))

    recorder = RunRecorder(images=None, buffer=Buffer(), clock=SystemClock())
    planner = Planner(Catalogue(sys.executable), allow_commands=False)
    for spec, words in (
        (RunSpec(workload="cpu-burn"), ["-m", "gpuagent_workloads", "run", "cpu-burn"]),
        (RunSpec(command=["python", "-c", "print()", "x"]), ["-c", "print()", "x"]),
    ):
        recorder.record_request(planner.plan(spec)[0])
        assert json.loads(request["command"])[1:] == words


def _unguarded(path: Path) -> Iterator[str]:
    """Yield where a command in a source file starts one of the project's modules by -m without -I."""
    for node in ast.walk(ast.parse(path.read_text())):
        given = node.args if isinstance(node, ast.Call) else getattr(node, "elts", ())
        words = [getattr(word, "value", None) for word in given]
        for index, word in enumerate(words[:-1]):
            follows = words[index + 1]
            if word == "-m" and str(follows).startswith("gpuagent") and not {"-I", "{python}"} & {*words[:index]}:
                yield f"{path.relative_to(ROOT)}: -m {follows}"


def test_no_source_starts_a_module_of_the_project_otherwise() -> None:
    sources = [path for part in ("agent", "collector", "proto", "workloads") for path in (ROOT / part).rglob("*.py")]
    starters = [path for path in sources if '"-m"' in path.read_text()]
    assert starters
    assert [found for path in starters for found in _unguarded(path)] == []


def test_a_long_wait_says_what_it_is_for_and_a_short_one_nothing(capfd: pytest.CaptureFixture[str]) -> None:
    with waiting_for("gpuagent", "nothing", after_seconds=600):
        pass
    printed = ""

    def has_printed() -> bool:
        nonlocal printed
        printed += capfd.readouterr().err
        return "the moon" in printed

    with waiting_for("gpuagent", "the moon", after_seconds=0):
        until(has_printed, "the line")
    assert "nothing" not in printed


@pytest.mark.parametrize(
    ("offset_seconds", "words", "is_wrong"),
    [
        (172_799.999, "2 d behind", True),
        (-75.0, "75 s ahead", True),
        (3.0, "3 s behind", True),
        (-0.001, "0 s ahead", False),
    ],
)
def test_the_sign_of_a_clock_is_that_of_the_collector_s_less_the_node_s(
    offset_seconds: float, words: str, is_wrong: bool
) -> None:
    assert describe_offset(offset_seconds) == words
    assert is_clock_wrong(offset_seconds) is is_wrong


def test_a_long_command_is_recorded_as_far_as_a_collector_takes_it() -> None:
    words = ["convert", *(f"{number:06}.jpg" for number in range(40_000))]
    short = shorten_command(words)
    assert shorten_command(words[:100]) == words[:100]
    assert short[:-1] == words[: len(short) - 1]
    assert short[-1] == f"… {len(words) - len(short) + 1} more words"
    assert len("".join(short)) < 40_000
