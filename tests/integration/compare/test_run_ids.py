"""Run ids hold any text: answers find such runs in a file, in a lake and through a collector."""

from collections.abc import Iterator

import pytest

from gpuagent_collector.answers.profile import study_profile
from gpuagent_collector.answers.roofline import study_roofline
from gpuagent_collector.cli.printing import asking
from gpuagent_collector.launching.progress import PROGRESS_SQL
from gpuagent_collector.prices.files import parse_prices
from gpuagent_collector.prices.runs import with_costs
from gpuagent_collector.query.ask import Ask, with_values
from gpuagent_collector.query.execute import Limits
from gpuagent_collector.query.reader import FileReader
from gpuagent_collector.query.remote import RemoteReader
from gpuagent_collector.runs.data import load_facts, load_runs
from gpuagent_collector.runs.facets import find_facet
from gpuagent_collector.runs.series import load_courses
from gpuagent_collector.store import StoreSpec
from tests.integration.compare.synthetic import SyntheticStore
from tests.integration.profile.traced import add_traced, kernel
from tests.integration.roofline.made_up import GPU, add_ceilings, add_trial, fp32
from tests.support.commands import adding_to
from tests.support.query_servers import serving_queries
from tests.support.stores import open_store

pytestmark = pytest.mark.slow

NAMES = {"run-1": "a,b", "run-2": 'c\'d, "e" [f]\\"'}


def fill(store: SyntheticStore) -> None:
    """Add a run of `ceilings`, and two runs with ids that need quoting."""
    node = store.node("spruce", "lab", gpus=[GPU])
    add_ceilings(store, node)
    add_trial(store, node, {**fp32(1e12), "dram_bytes_per_step": 1e12})
    add_traced(store, node, [kernel("add", 1.0)], results={"gpu_busy_seconds_per_step": 0.5})
    for rows in store.rows.values():
        for row in rows:
            if row.get("run_id") in NAMES:
                row["run_id"] = NAMES[row["run_id"]]


@pytest.fixture(scope="module", params=["file", "lake", "remote"])
def ask(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ask]:
    spec = f"{'ducklake:' if request.param == 'lake' else ''}{tmp_path_factory.mktemp('ids') / 'runs.store'}"
    with open_store(spec) as store:
        with adding_to(store) as synthetic:
            fill(synthetic)
        if request.param == "remote":
            with serving_queries(store, Limits()) as serving:
                reader = RemoteReader(serving.address, "token")
                yield asking(reader, show_sql=False)
                reader.close()
            return
    file = FileReader(StoreSpec.parse(spec))
    yield asking(file, show_sql=False)
    file.close()


def test_run_ids_with_commas_and_quotes_are_found(ask: Ask) -> None:
    runs = {run.run_id: run for run in load_runs(ask, find_facet("platform"), workload="mnist", experiment=None)}
    assert set(runs) == set(NAMES.values())
    facts = load_facts(ask, runs)
    assert set(facts.metrics) == set(facts.sessions) == set(facts.devices) == set(runs)
    assert all(load_courses(ask, run, facts, buckets=100)[0].curves for run in runs.values())
    prices = parse_prices(
        b"- {platform: lab, currency: USD, instance_hour: 1, provisioning_included: true}", "prices.yaml"
    )
    assert all("cost_per_run_usd" in of_run for of_run in with_costs(ask, facts, prices).metrics.values())
    assert {row["run_id"] for row in ask(PROGRESS_SQL, [list(runs)])} == set(runs)


def test_profile_and_roofline_show_runs_with_commas_in_their_ids(ask: Ask) -> None:
    (side,) = study_profile(ask, values=[NAMES["run-2"]], by=None, workload=None, experiment=None).sides
    assert side.step_seconds == {"gpu_busy_seconds_per_step": 0.5}
    (roofline,) = study_roofline(ask, workloads=(), by="platform", platform=None, experiment=None).rooflines
    assert [trial.run.run_id for point in roofline.points for trial in point.trials] == list(NAMES.values())


def test_lists_are_shown_as_sql_that_can_be_run_again(ask: Ask) -> None:
    ids = list(NAMES.values())
    statement = with_values("SELECT unnest(CAST(? AS VARCHAR[])) AS run_id", [ids])
    assert [row["run_id"] for row in ask(statement)] == ids
