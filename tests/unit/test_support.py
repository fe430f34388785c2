"""Shared parts of the tests themselves."""

import re
import signal
import sys
from pathlib import Path

import pytest

from tests.support.programs import describe_missing, need
from tests.support.quick import ALL_SECONDS, MODULE_SECONDS, is_slow, over_the_budget
from tests.support.servers import ForkingNode, Node, until


def test_a_skipped_test_ends_the_processes_of_its_node(tmp_path: Path) -> None:
    with pytest.raises(pytest.skip.Exception), Node(tmp_path) as node:
        process = node.start(sys.executable, "-c", "import time; time.sleep(600)", log="log")
        pytest.skip("Slurm is missing")
    assert process.returncode is not None


@pytest.mark.parametrize("kind", [Node, ForkingNode])
def test_a_command_in_a_fork_is_as_one_that_was_started(kind: type[Node], tmp_path: Path) -> None:
    with kind(tmp_path) as node:
        collector = node.serve()
        node.environment["ADDED"] = "here"
        where = node.run("gpuagent", "run", "--", "sh", "-c", "echo $ADDED $PWD; exit 7", code=7)
        assert where.stdout == f"here {tmp_path}\n"
        assert "exit code 7" in where.stderr
        assert "no option --nonsense" in node.run("collector", "runs", "--nonsense", code=2).stderr
        run = node.start("gpuagent", "run", "--", "sh", "-c", "echo begins; sleep 600", log="run.log")
        until(lambda: "begins" in (tmp_path / "run.log").read_text(), "the program's line")
        assert (run.poll(), node.stop(run, signal.SIGINT)) == (None, 130)
        assert node.stop(collector, signal.SIGKILL) == -signal.SIGKILL


@pytest.mark.parametrize(("ci", "raised"), [("", pytest.skip.Exception), ("true", pytest.fail.Exception)])
def test_a_missing_program_skips_with_its_package_and_fails_in_ci(
    monkeypatch: pytest.MonkeyPatch, ci: str, raised: type[BaseException]
) -> None:
    monkeypatch.setenv("CI", ci)
    monkeypatch.setenv("PATH", "")
    with pytest.raises(raised, match="ch-run, ch-image, dash"):
        need("ch-run", "ch-image", "dash")


def test_one_line_says_what_installs_all_programs_that_were_missing() -> None:
    reasons = ["needs ch-run, dash; install: charliecloud dash", "needs dash; install: dash", "needs a GPU"]
    assert describe_missing(reasons) == "apt-get install charliecloud dash"
    assert describe_missing([*reasons, "needs x; install: https://x.example"]) == (
        "apt-get install charliecloud dash; https://x.example"
    )
    assert describe_missing(["needs a GPU"]) is None


def test_quick_modules_that_take_long_are_named_the_slowest_first() -> None:
    def report(name: str, seconds: float) -> pytest.TestReport:
        taken = [("cpu_seconds", seconds)]
        return pytest.TestReport(name, ("", 0, ""), {}, "passed", None, "teardown", user_properties=taken)

    most = MODULE_SECONDS
    lines = over_the_budget([report("a::x", 0.6 * most), report("b::x", most), report("a::y", 0.6 * most)])
    assert [line.split()[0] for line in lines] == ["a"]
    lines = over_the_budget([report("a::x", 1.1 * most), report("b::x", 1.2 * most)])
    assert [line.split()[0] for line in lines] == ["b", "a"]
    (line,) = over_the_budget([report(f"{number}::x", 1.0) for number in range(int(ALL_SECONDS) + 1)])
    assert line.startswith("all quick tests ")


def test_a_module_is_slow_by_its_own_mark() -> None:
    for mark in ("pytest.mark.slow", '[pytest.mark.slow, pytest.mark.needs("psql")]'):
        assert is_slow(f"import pytest\n\npytestmark = {mark}\n")
    assert not is_slow('pytestmark = [pytest.mark.needs("kubectl")]\n\n@pytest.mark.slow\n')


def test_commands_are_run_through_their_group() -> None:
    # click keeps the first help option that a command had: alone it has no -h, for all tests that come after.
    tests = Path(__file__).parents[1]
    for path in tests.rglob("*.py"):
        text = path.read_text()
        alone = [*re.findall(r"CliRunner\(.*\.invoke\((?!cli\b).*", text)]
        alone += [line for line in re.findall(r".*command\.make_context\(.*", text) if "parent=" not in line]
        assert not alone or path == Path(__file__), f"{path.name}: {alone[0].strip()}"
