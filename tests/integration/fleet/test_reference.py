"""Runs beside the published ones, and the description of these."""

import csv
import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from statistics import median

import pytest

from gpuagent_collector.answers.peers import answer_peers
from gpuagent_collector.answers.reference import load_reference, write_parameters
from gpuagent_collector.metrics import BY_NAME
from gpuagent_collector.present.answer import Answer
from gpuagent_common.errors import MisuseError
from tests.integration.compare.synthetic import SyntheticStore
from tests.support.commands import synthetic

GPU = "NVIDIA H200"
FOLDER = Path(__file__).resolve().parents[3] / "docs" / "reference"
PUBLISHED = [row for row in load_reference() if (row["workload"], row["device"]) == ("resnet50", GPU)]
THROUGHPUT = median(float(row["throughput_items_per_second"]) for row in PUBLISHED)


def read_parameter(text: str) -> object:
    """Return a parameter as a run has it: numbers and truths are no texts."""
    return json.loads(text) if text[0].isdigit() or text in ("true", "false") else text


WORDS = dict(word.split("=") for word in PUBLISHED[0]["parameters"].split())
PARAMETERS = {key: read_parameter(text) for key, text in WORDS.items()} | {"threads": None}


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SyntheticStore]:
    """A run as quick as the published ones, one whose steps take a quarter longer, and two without a reference."""
    with synthetic(tmp_path_factory.mktemp("reference") / "runs.duckdb") as store:
        node = store.node("spruce", "laptop", gpus=(GPU,))
        runs = {"sound": (PARAMETERS, 1.0), "slow": (PARAMETERS, 1.25), "longer": ({**PARAMETERS, "steps": 46}, 1.0)}
        for turn, (run_id, (parameters, times)) in enumerate(runs.items()):
            asked = {"workload": "resnet50", "parameters": parameters, "throughput": THROUGHPUT / times}
            store.run(run_id, node, start_seconds=60 * turn, **asked)  # type: ignore[arg-type]
        own = {"workload": "resnet50", "parameters": {}, "command": '["python3", "mine.py"]'}
        store.run("own", node, start_seconds=300, **own)  # type: ignore[arg-type]
        yield store


def beside(store: SyntheticStore, name: str | None = None) -> Answer:
    return answer_peers(store.ask, name=name, reference=True)


@pytest.mark.parametrize(("run_id", "percent", "place"), [("sound", 100, "within"), ("slow", 80, "below")])
def test_a_run_is_placed_among_published_ones(store: SyntheticStore, run_id: str, percent: float, place: str) -> None:
    answer = beside(store, run_id)
    first, step, *_ = answer.tables()[0].records()
    assert (first["figure"], first["place"], first["reference_runs"]) == ("throughput", place, len(PUBLISHED))
    assert first["percent"] == pytest.approx(percent)
    assert step["figure"] == "step_seconds"
    assert f"at {percent} % of the reference for resnet50" in answer.text


def test_a_run_without_a_reference_says_in_what_the_nearest_differs(store: SyntheticStore) -> None:
    answer = beside(store, "longer")
    assert answer.tables()[0].records() == []
    assert "no reference" in answer.text
    assert "steps=45" in answer.text


def test_without_a_name_the_newest_run_of_each_setting_is_shown(store: SyntheticStore) -> None:
    answer = beside(store)
    assert [row["run_id"] for row in answer.tables()[0].records()] == ["slow"]
    assert answer.facts["without_reference"] == ["longer", "own"]
    # They ran on a GPU of the reference.
    assert GPU not in answer.text.partition("No published run is like")[2]


def test_a_published_run_is_not_its_own_reference(store: SyntheticStore) -> None:
    node = store.node("elm", "laptop", gpus=(GPU,))
    published = {"workload": "resnet50", "parameters": PARAMETERS, "throughput": THROUGHPUT}
    store.run(PUBLISHED[0]["run_id"], node, start_seconds=-600, **published)  # type: ignore[arg-type]
    first = beside(store, PUBLISHED[0]["run_id"]).tables()[0].records()[0]
    assert first["reference_runs"] == len(PUBLISHED) - 1


def test_a_run_without_peers_is_sent_to_the_published_ones(store: SyntheticStore) -> None:
    following = {name: answer_peers(store.ask, name=name).next for name in ("longer", "own")}
    assert following == {"longer": "collector peers longer --reference", "own": "collector show own"}


def test_parts_have_no_reference(store: SyntheticStore) -> None:
    with pytest.raises(MisuseError, match="--each"):
        answer_peers(store.ask, name="sound", reference=True, each="gpu")


def test_parameters_are_written_as_the_query_of_the_reference_writes_them(store: SyntheticStore) -> None:
    assert write_parameters(PARAMETERS) == PUBLISHED[0]["parameters"]


def test_the_description_has_the_columns_and_the_sum_of_the_file() -> None:
    description = json.loads((FOLDER / "croissant.json").read_text())
    content = (FOLDER / "runs.csv").read_bytes()
    header = next(csv.reader(content.decode().splitlines()))
    (records,) = description["recordSet"]
    assert [field["source"]["extract"]["column"] for field in records["field"]] == header
    assert description["distribution"][0]["sha256"] == hashlib.sha256(content).hexdigest()
    assert len(content) < 200_000
    assert set(header[header.index("step_seconds") :]) <= BY_NAME.keys()
