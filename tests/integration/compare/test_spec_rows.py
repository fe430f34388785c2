"""What stands in the table of the sides' hardware and software."""

from gpuagent_collector.compare.comparison import Request, compare
from tests.integration.compare.synthetic import RUN_SECONDS, SyntheticStore


def titles_of(store: SyntheticStore, *texts_of_sides: dict[str, str]) -> dict[str, bool]:
    """Return the titles for two sides whose runs reported these texts, and whether the sides differ there."""
    for turn, texts in enumerate(texts_of_sides):
        node = store.node(f"node-{turn}", f"place-{turn}")
        store.run(f"run-{turn}", node, start_seconds=turn * (RUN_SECONDS + 1), texts=texts)
    store.write()
    return {row.title: row.differs for row in compare(store.ask, Request()).specs}


def test_versions_that_workloads_report_are_compared(store: SyntheticStore) -> None:
    titles = titles_of(store, {"cudnn_version": "91900"}, {"cudnn_version": "90100"})
    assert titles["cuDNN version"]


def test_where_a_run_left_its_trace_or_why_it_has_none_is_no_property_of_a_side(store: SyntheticStore) -> None:
    trace = {"trace_file": "/runs/a/trace.0.json.gz"}
    failed = {"trace_failed": "no CUPTI", "counters_failed": "not permitted"}
    assert not [title for title in titles_of(store, trace, failed) if title.startswith(("Trace", "Counters"))]
