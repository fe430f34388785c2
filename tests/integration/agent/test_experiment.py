import json
import re
import signal
import sys
from pathlib import Path

import pytest

from tests.support.servers import LIMIT_SECONDS, Node, until

pytestmark = pytest.mark.slow

STUDY = """
name: study
repeats: 3
workloads:
  - command: ["{python}", "-c", "print('quiet')"]
  - command: ["{python}", "-c", "{second}"]
answer: [compare --by environment --metric run_seconds]
"""


def written(node: Node, second: str = "print('other')") -> Path:
    path = node.folder / "study.yaml"
    path.write_text(STUDY.format(python=sys.executable, second=second))
    return path


def succeeded(node: Node) -> list[tuple[int, int]]:
    sql = "SELECT repeat, count(*) AS n FROM runs WHERE experiment = 'study' AND status = 'succeeded' GROUP BY repeat"
    return [(row["repeat"], row["n"]) for row in node.ask(f"{sql} ORDER BY repeat")]


def test_an_experiment_makes_its_runs_and_then_asks_for_its_answer(sharing: Node) -> None:
    done = sharing.run("gpuagent", "experiment", "run", str(written(sharing)))
    assert "[6/6]" in done.stderr
    assert "$ collector compare --by environment --metric run_seconds --experiment study" in done.stderr
    assert "There is no other side, so nothing was compared." in " ".join(done.stdout.split())
    assert succeeded(sharing) == [(1, 2), (2, 2), (3, 2)]
    page = (sharing.folder / "study-answer" / "answer.md").read_text()
    assert "There is no other side, so nothing was compared." in page
    assert "[01-compare.csv](01-compare.csv), [01-compare.sql](01-compare.sql)" in page
    again = sharing.run("gpuagent", "experiment", "run", str(written(sharing)))
    assert "all 6 runs" in again.stderr
    assert succeeded(sharing) == [(1, 2), (2, 2), (3, 2)]
    text = written(sharing).read_text()
    for answer, words in (("", "Next:\n  collector show "), ("answer: [compare here openshift]\n", "another platform")):
        written(sharing).write_text(text.partition("answer:")[0] + answer)
        once = ("--repeats", "1", "--name", f"study-{len(answer)}")
        done = sharing.run("gpuagent", "experiment", "run", str(sharing.folder / "study.yaml"), *once)
        assert words in done.stdout + done.stderr


def test_without_a_collector_the_runs_are_made_and_the_later_commands_printed_once(node: Node) -> None:
    node.without_collector()
    path, token = written(node), node.folder / "token"
    path.write_text(path.read_text().replace("answer: [", "cool_down: {seconds: 1}\nanswer: [recommend x, "))
    given = ("gpuagent", "experiment", "run", str(path), "--repeats", "1")
    said = node.run(*given).stderr
    assert re.search(r"^\[1/2\] .*  cools down for 1 s$", said, re.MULTILINE)
    assert re.search(r"^\[1/2\] .*  [\d.]+ m?s · after \d+\.\d s of cool-down ·", said, re.MULTILINE)
    later = f"collector answer {path} --collector 127.0.0.1:1 --token-file {token}"
    assert "messages wait in " in said
    assert f"run this:\n  {later}\n" in said
    again = node.run(*given).stderr
    assert again.endswith("and no collector listens at 127.0.0.1:1; once it does, run this command again\n")
    assert "collector answer" not in again


def test_again_with_a_collector_it_delivers_what_waits_and_answers(node: Node) -> None:
    node.without_collector()
    given = ("gpuagent", "experiment", "run", str(written(node)))
    node.run(*given)
    node.serve()
    again = node.run(*given)
    assert re.search(r"all 6 runs .*\n.*\d messages of earlier runs delivered", again.stderr)
    assert "There is no other side, so nothing was compared." in " ".join(again.stdout.split())
    assert succeeded(node) == [(1, 2), (2, 2), (3, 2)]
    assert "delivered" not in node.run(*given).stderr


def test_without_a_collector_it_can_store_in_a_file_and_answers_from_it(node: Node) -> None:
    node.without_collector()
    store, path = node.folder / "own.duckdb", written(node)
    path.write_text(path.read_text().partition("answer:")[0])
    words = ("gpuagent", "experiment", "run", str(path), "--repeats", "1", "--store", str(store))
    done = node.run(*words)
    assert f"stored in {store} as study" in done.stderr
    assert done.stdout == f"Next:\n  collector show study --store {store}\n"
    assert "all 2 runs" in node.run(*words).stderr
    assert "2 runs" in node.run("collector", "show", "study", "--store", str(store)).stdout


def test_a_mistake_in_an_answer_is_reported_before_the_first_run(node: Node) -> None:
    path = written(node)
    path.write_text(path.read_text().replace("run_seconds", "seconds_of_run"))
    said = node.run("gpuagent", "experiment", "run", str(path), code=2).stderr
    assert said.startswith(
        "gpuagent: answer `compare --by environment --metric seconds_of_run --experiment study`: --m"
    )
    path.write_text(path.read_text().replace("--metric seconds_of_run", "--by enviroment"))
    assert "mean environment?" in node.run("gpuagent", "experiment", "run", str(path), "--dry-run", code=2).stderr


def test_a_token_that_cannot_be_used_is_reported_before_the_first_run(node: Node) -> None:
    node.without_collector()
    (node.folder / "token").chmod(0o644)
    said = node.run("gpuagent", "experiment", "run", str(written(node)), code=2).stderr
    assert "run: chmod 600" in said


def test_the_same_runs_are_made_once_and_continue_after_ctrl_c(sharing: Node) -> None:
    path = written(sharing, "import os, time; os.path.exists('go') or time.sleep(600)")
    process = sharing.start("gpuagent", "experiment", "run", str(path), log="first.log")
    log = sharing.folder / "first.log"
    until(lambda: sharing.ask("SELECT 1 FROM runs WHERE status = 'running'"), "the run that waits")
    second = sharing.run("gpuagent", "experiment", "run", str(path), code=1)
    assert f"(process {process.pid})" in second.stderr
    assert sharing.stop(process, signal.SIGINT) == 130
    assert re.search(r"cancelled after .*; [0-6] of 6 runs", log.read_text())
    (sharing.folder / "go").touch()
    sharing.run("gpuagent", "experiment", "run", str(path))
    assert succeeded(sharing) == [(1, 2), (2, 2), (3, 2)]


def test_a_part_of_the_cells_is_continued_by_the_rest_and_a_changed_file_is_refused(sharing: Node) -> None:
    path = written(sharing)
    named = path.read_text().replace("- command", "- name: first\n    command", 1)
    path.write_text(named.replace("- command", "- name: second\n    command"))
    given = ("gpuagent", "experiment", "run", str(path))
    part = sharing.run(*given, "--only", "workload=first").stderr
    assert "[3/3]" in part
    assert succeeded(sharing) == [(1, 1), (2, 1), (3, 1)]
    dry = (*given, "--dry-run", "--only", "workload=first")
    planned = sharing.run(*dry).stdout
    assert planned.startswith("study: 0 runs left of 3, in turns\n")
    assert "earlier run" not in planned
    assert sharing.run(*given, "--dry-run").stdout.startswith("study: 3 runs left of 6, in turns\n")
    sharing.run(*given)
    assert succeeded(sharing) == [(1, 2), (2, 2), (3, 2)]
    path.write_text(path.read_text().replace("print('other')", "print('changed')"))
    again = ("experiment", "run", str(path))
    for code, _, err in sharing.run_each(again, (*again, "--only", "workload=first")):
        assert (code, "with other runs" in err) == (2, True)


def test_a_plan_is_checked_and_printed_without_a_run(node: Node) -> None:
    path = written(node)
    path.write_text(
        path.read_text().replace(
            "  - command", "  - {workload: mnist, environments: ['podman:no-such']}\n  - command", 1
        )
    )
    node.environment |= {"COLUMNS": "80", "GPUAGENT_PODMAN": "no-such-podman"}
    printed = node.run(
        "gpuagent", "experiment", "run", str(path), "--dry-run", "--param", "steps=5"
    ).stdout.splitlines()
    assert printed[-2].startswith("only bare can run here, so no environments can be compared; --force")
    assert printed[:3] == [
        "study: 6 runs left of 6, in turns",
        " runs     each  cell",
        " skip        –  mnist steps=5 · podman:no-such",
    ]
    assert "skipped 1 cell of mnist:" in " ".join(printed)
    assert "to estimate from" in printed[-3]
    assert max(map(len, printed)) <= 80
    assert not list((node.folder / "spool").glob("experiments/*"))
    bad = node.folder / "bad.yaml"
    bad.write_text("name: bad\nworkloads:\n  - command: [/no/such/program]\n")
    refused, schema, every = node.run_each(
        ["experiment", "run", str(bad)], ["experiment", "schema"], ["experiment", "list"]
    )
    assert refused[0] == 2
    assert "program '/no/such/program'" in refused[2]
    assert "Traceback" not in refused[2]
    assert json.loads(schema[1])["title"] == "gpuagent experiment"
    # What does not fit into a line goes on below the questions.
    assert max(map(len, every[1].splitlines())) <= 80
    names = [line.split()[0] for line in every[1].splitlines() if not line.startswith(" " * 13)]
    assert names == ["accelerators", "containers", "fleet-check", "hpc-cloud", "layers", "vm-container"]


def test_a_study_is_shown_with_its_comments_and_runs_under_another_name(node: Node) -> None:
    shown = node.run("gpuagent", "experiment", "show", "layers").stdout
    assert shown.startswith("# ")
    assert "name: layers\n" in shown
    mine = node.folder / "mine.yaml"
    mine.write_text(shown)
    renamed, *refused = node.run_each(
        ["experiment", "run", str(mine), "--dry-run", "--name", "mine", "--repeats", "2"],
        ["experiment", "run", "layers", "--data", "/no/such"],
        ["experiment", "run", "layers", "--param", "stps=1"],
        ["experiment", "show", "layer"],
    )
    assert renamed[1].startswith("mine: ")
    named = ("/no/such", "stps", "mean layers?\n")
    for (code, _, err), words in zip(refused, named, strict=True):
        assert (code, words in err) == (2, True)


def test_an_experiment_goes_on_by_itself_when_the_command_whose_agent_it_uses_ends(sharing: Node) -> None:
    other = sharing.start("gpuagent", "run", "--", "sleep", "600", log="other.log")
    until(lambda: sharing.ask("SELECT 1 FROM runs WHERE status = 'running'"), "the other command's run")
    process = sharing.start("gpuagent", "experiment", "run", str(written(sharing)), log="study.log")
    until(lambda: sharing.ask("SELECT 1 FROM runs WHERE experiment = 'study'"), "the experiment's run to wait")
    sharing.stop(other, signal.SIGKILL)
    assert process.wait(LIMIT_SECONDS) == 0
    assert "has ended; another" in (sharing.folder / "study.log").read_text()
    assert succeeded(sharing) == [(1, 2), (2, 2), (3, 2)]
