"""Facts about runs."""

import pytest

from gpuagent_collector.runs.data import load_facts


@pytest.mark.parametrize(("run_ids", "statements"), [([], 0), (["run-1", "run-2"], 5)])
def test_facts_and_figures_of_runs_take_five_statements_and_of_none_none(run_ids: list[str], statements: int) -> None:
    asked: list[str] = []

    def ask(sql: str, parameters: object = ()) -> list[dict[str, object]]:
        asked.append(sql)
        return []

    facts = load_facts(ask, run_ids)
    assert len(asked) == statements
    assert not (facts.sessions or facts.metrics or facts.texts)
