"""A record of the statements that an answer asked."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from gpuagent_collector.query.ask import Ask
from gpuagent_collector.query.execute import Parameter
from gpuagent_collector.query.literal import with_values


class Recorder:
    """A recorder of queries, by topic. A statement that several topics have is asked once."""

    def __init__(self, ask: Ask) -> None:
        self._ask = ask
        self._statements: dict[str, list[str]] = defaultdict(list)
        # Of each statement, with its values filled in and its answer.
        self._known: dict[tuple[str, str], tuple[str, list[dict[str, Any]]]] = {}

    @property
    def statements(self) -> Mapping[str, Sequence[str]]:
        """The statements with their values filled in, by topic, in the order in which they were asked."""
        return self._statements

    def about(self, topic: str) -> Ask:
        """Return a function that asks the store and keeps the statements under a topic."""

        def ask(sql: str, parameters: Sequence[Parameter] = ()) -> list[dict[str, Any]]:
            asked = sql, repr(parameters)
            if asked not in self._known:
                self._known[asked] = f"{with_values(sql.strip(), parameters)};", self._ask(sql, parameters)
            statement, rows = self._known[asked]
            self._statements[topic].append(statement)
            return rows

        return ask
