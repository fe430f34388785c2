"""Facts about runs."""

from gpuagent_collector.runs.data import load_facts


def test_nothing_is_asked_about_no_runs() -> None:
    asked: list[str] = []

    def ask(sql: str, parameters: object = ()) -> list[dict[str, object]]:
        asked.append(sql)
        return []

    facts = load_facts(ask, [])
    assert not asked
    assert not facts.sessions
    assert not facts.metrics


def test_facts_and_figures_of_runs_take_five_statements() -> None:
    asked: list[str] = []

    def ask(sql: str, parameters: object = ()) -> list[dict[str, object]]:
        asked.append(sql)
        return []

    assert not load_facts(ask, ["run-1", "run-2"]).texts
    assert len(asked) == 5
