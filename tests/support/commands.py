"""Commands of the collector as they are used on stores of made-up runs."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from gpuagent_collector.store import Store
from tests.integration.compare.synthetic import SyntheticStore

# A text that would act on a terminal, on rich's markup, in a table of Markdown and in a page.
HOSTILE = "\x1b[31m\x9b2J\u202e[red]|x|[/]`<b>"

# Exit code, stdout and stderr.
Printed = tuple[int, str, str]

Collector = Callable[..., Printed]


@contextmanager
def made_up(path: Path) -> Iterator[SyntheticStore]:
    """Make a store at `path`; what was added to it is written when the block ends."""
    with Store.open(str(path)) as opened:
        store = SyntheticStore(opened.connect())
        yield store
        store.write()
        store.connection.close()


def asked_of(filled: Path, collector: Collector, command: str) -> Collector:
    """Return a call of `collector COMMAND` on `filled`, or the `store` given, in 80 columns."""

    def run(*arguments: str, columns: int = 80, store: Path = filled) -> Printed:
        return collector(command, store, *arguments, columns=columns)

    return run
