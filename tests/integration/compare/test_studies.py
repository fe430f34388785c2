"""The five studies: every command of their answers on recorded stores, and that docs/studies.md has each."""

import json
import re
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from gpuagent.experiment.file import studies
from gpuagent_collector.cli.answer import answer_question
from gpuagent_collector.launching.experiment_file import read_file, read_question
from gpuagent_collector.query.reader import open_reader
from tests.integration.compare.filled import Fill
from tests.integration.compare.studied import STUDIES, add_studies
from tests.integration.profile.traced import add_traced, recorded
from tests.support.commands import Collector, Printed, csv_rows, made_up

pytestmark = pytest.mark.slow

PAGE = (Path(__file__).resolve().parents[3] / "docs" / "studies.md").read_text()
FILES = {path.stem: path for path in studies() if path.stem in STUDIES}


def answer_commands(study: str) -> list[tuple[str, ...]]:
    """Return the commands of a study's answer."""
    file = read_file(FILES[study], name=None, repeats=None, only=(), force=False)
    return [each.words for each in read_question(file).answers]


@pytest.fixture
def run(
    filled: Callable[[Fill], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, collector: Collector
) -> Callable[..., Printed]:
    """Run a command of `collector` on a store with all five studies, in 80 columns and in an empty folder."""
    monkeypatch.chdir(tmp_path)
    return lambda command, *words: collector(command, filled(add_studies), *words, columns=80)


def one_run(path: Path, **run: Any) -> Path:
    """Make a store with a single run."""
    with made_up(path) as store:
        store.run("only", store.node("spruce", "laptop"), start_seconds=0, **run)
    return path


@pytest.mark.parametrize("study", sorted(STUDIES))
def test_every_command_of_the_answer_prints_or_draws(study: str, run: Callable[..., Printed], tmp_path: Path) -> None:
    commands = answer_commands(study)
    assert len(commands) > 5
    for words in commands:
        code, out, err = run(*words)
        assert code == 0, (words, err)
        assert out.strip(), words
        assert max(map(len, out.splitlines())) <= 80, words
        # The next command says `--param` as the user did.
        assert "json_extract" not in out, words
        if "-o" in words:
            picture = tmp_path / words[words.index("-o") + 1]
            assert picture.stat().st_size > 1000, words


def test_stacks_of_layers_are_shown_with_what_fits_and_the_part_of_each_gpu(run: Callable[..., Printed]) -> None:
    _, out, _ = run("show", "--workload", "memory-limit", "--experiment", "layers")
    lines = [" ".join(line.split()) for line in out.splitlines()]
    first = lines.index("61 conv + 61 fc largest that fits 109 ms 11 GB 1")
    assert lines[first + 1] == "GPU 0: 30 + 30 50 ms 5 GB 1"
    assert "61 conv + 62 fc fits 109 ms 11 GB 1" in lines
    assert "62 conv + 62 fc out of memory – – 1" in lines
    stacks = json.loads(run("show", "--workload", "memory-limit", "--experiment", "layers", "--json")[1])["stacks"]
    assert [(each["conv"], each["fits"]) for each in stacks if each["gpu"] is None] == [
        (61, True),
        (61, True),
        (62, False),
    ]


def test_stacks_are_in_the_order_of_their_numbers(collector: Collector, tmp_path: Path) -> None:
    path = tmp_path / "stacks.duckdb"
    with made_up(path) as store:
        ended = store.next_run(store.node("lab-1", "lab"), workload="memory-limit", throughput=None, parameters={})
        for count in (6, 30):
            layers = {"conv_layers": float(count), "fc_layers": float(count), "fits": 1.0}
            store.report(ended, {f"point_conv{count}_fc{count}_{field}": value for field, value in layers.items()})
    stacks = json.loads(collector("show", path, "--workload", "memory-limit", "--json", columns=80)[1])["stacks"]
    assert [each["conv"] for each in stacks] == [6, 30]


def test_hardware_alone_has_the_datasheet_s_peaks(run: Callable[..., Printed]) -> None:
    asked = ("compare", "--by", "device", "--specs", "--experiment", "accelerators")
    _, out, _ = run(*asked)
    assert out.startswith("Hardware and software")
    assert "Peak FP32, datasheet" in out
    rows = csv_rows(run(*asked, "--format", "csv")[1])
    assert {"property": "Peak FP32, datasheet", "side": "NVIDIA L4", "value": "67 TFLOP/s", "differs": "false"} in rows
    assert run(*asked, "--table", "throughput")[0] == 2


def test_the_page_has_each_study() -> None:
    assert set(re.findall(r"^gpuagent experiment run (\S+)$", PAGE, flags=re.MULTILINE)) == set(STUDIES)


ANSWERED = """
name: small
question: What does a container cost?
workloads: [{workload: mnist}]
answer:
  - "Table 1": compare --by environment --table throughput,gpu_utilization_percent --max
  - "Figure 1": plot throughput --by environment -o figure-1.svg
  - compare --by environment
  - profile bare docker --by environment --workload mnist
"""


def test_an_answer_is_written_into_a_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    spec = str(tmp_path / "runs.store")
    with made_up(spec) as store:
        node = store.node("vm", "vm", gpus=["NVIDIA H200"])
        for environment in ("bare", "docker"):
            add_traced(store, node, recorded(), environment=environment, experiment="small")
    path = tmp_path / "small.yaml"
    path.write_text(ANSWERED)
    question = read_question(read_file(path, name=None, repeats=None, only=(), force=False))
    folder = tmp_path / "small"
    with closing(open_reader(address=None, token_file=None, store=spec)) as reader:
        assert answer_question(question, reader, folder) == 0
    page = (folder / "answer.md").read_text()
    assert page.startswith("# small\n\nWhat")
    assert re.findall(r"^## (.*)", page, flags=re.MULTILINE) == ["Table 1", "Figure 1", "compare", "profile"]
    names = set(re.findall(r"\]\(([^)]+)\)", page))
    written = {f"{stem}.{kind}" for stem in ("01-compare", "03-compare", "04-profile") for kind in ("csv", "sql")}
    assert names == {"experiment.yaml", "figure-1.svg", "02-plot.sql", *written}
    assert all((folder / name).stat().st_size > 0 for name in names)
    assert (folder / "experiment.yaml").read_text() == ANSWERED
    assert "4 answers written to " in capsys.readouterr().err


def test_a_study_of_one_side_ends_in_values_and_names_what_has_no_answer_yet(
    tmp_path: Path, collector: Collector, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = one_run(tmp_path / "runs.duckdb", parameters={"counters": "none"}, experiment="containers")
    monkeypatch.chdir(tmp_path)
    code, out, err = collector("answer", path, "containers", columns=80)
    assert code == 0
    assert "There is no other side, so nothing was compared." in " ".join(out.split())
    assert "no answer yet: Kernels: Docker against bare metal: " in err
    assert "of 10 answers" in err
    assert "No answer yet: " in (tmp_path / "containers-answer" / "answer.md").read_text()


def test_what_is_drawn_may_follow_the_sides(run: Callable[..., Printed]) -> None:
    chosen = ("--by", "environment", "--experiment", "containers")
    first = run("plot", "throughput", "bare", "charliecloud", *chosen, "-o", "first.png")
    assert first[0] == 0
    last = run("plot", "bare", "charliecloud", "throughput", *chosen, "-o", "first.png", "--force")
    assert last == first


def test_without_matplotlib_there_are_tables_and_one_line(
    tmp_path: Path, collector: Collector, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = one_run(tmp_path / "runs.duckdb", experiment="e")
    file = tmp_path / "e.yaml"
    answers = "[compare --by environment, plot throughput -o a.svg, plot run_seconds -o b.svg]"
    file.write_text(f"name: e\nworkloads: [{{workload: mnist}}]\nanswer: {answers}\n")
    monkeypatch.setattr("gpuagent_collector.cli.answer.find_spec", lambda _: None)
    code, _, err = collector("answer", path, str(file), "--output", str(tmp_path / "a"), columns=80)
    assert (code, err.count("need matplotlib")) == (0, 1)
    assert sorted(each.suffix for each in (tmp_path / "a").iterdir()) == [".csv", ".md", ".sql", ".yaml"]


def test_files_of_an_answer_stay_in_its_folder(
    tmp_path: Path, collector: Collector, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = one_run(tmp_path / "runs.duckdb", experiment="e")
    file = tmp_path / "e.yaml"
    file.write_text("name: e\nworkloads: [{workload: mnist}]\nanswer: [report ../out.html]\n")
    monkeypatch.chdir(tmp_path)
    code, _, err = collector("answer", path, "e.yaml", columns=80)
    assert code == 1
    assert "../out.html: files" in err
    assert not (tmp_path / "out.html").exists()
