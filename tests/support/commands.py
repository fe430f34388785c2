"""Commands of the collector as they are used on stores of made-up runs."""

import csv
import io
import re
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from gpuagent_collector.cli import main
from gpuagent_collector.query.reader import open_reader
from gpuagent_collector.store import Store
from gpuagent_common.text import is_dangerous
from tests.integration.compare.synthetic import SyntheticStore
from tests.support.stores import open_store

# A text that would act on a terminal, on rich's markup, in a table of Markdown and in a page.
HOSTILE = "\x1b[31m\x9b2J\u202e[red]|x|[/]`<b>"

# Exit code, stdout and stderr.
Printed = tuple[int, str, str]

Collector = Callable[..., Printed]


def run_collector(capture: pytest.CaptureFixture[str], *words: str) -> Printed:
    """Run a command of `collector` in this process."""
    with pytest.MonkeyPatch.context() as patch, pytest.raises(SystemExit) as ended:
        patch.setattr("sys.argv", ["collector", *words])
        main()
    printed = capture.readouterr()
    return int(ended.value.code or 0), printed.out, printed.err


@contextmanager
def made_up(path: Path | str) -> Iterator[SyntheticStore]:
    """Make a store at `path`, a lake's as text; what was added to it is written when the block ends."""
    with open_store(str(path)) as opened, adding_to(opened) as store:
        yield store


@contextmanager
def adding_to(opened: Store) -> Iterator[SyntheticStore]:
    """Add runs to an open store; they are written when the block ends."""
    with closing(opened.connect()) as connection:
        store = SyntheticStore(connection)
        yield store
        store.write()


@contextmanager
def synthetic(path: Path | str, fill: Callable[[SyntheticStore], object] | None = None) -> Iterator[SyntheticStore]:
    """Open the store at `path`, made where there is none, with what `fill` adds to it, to be asked."""
    with open_store(str(path)) as opened, closing(opened.connect()) as connection:
        store = SyntheticStore(connection)
        if fill:
            fill(store)
            store.write()
        yield store


def csv_rows(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text)))


def assert_inert(printed: Printed, code: int = 0) -> None:
    """Check that nothing printed acts on a terminal, and how the command ended."""
    assert printed[0] == code
    assert not [
        character for text in printed[1:] for character in text if character != "\n" and is_dangerous(character)
    ]


def assert_inert_markdown(out: str) -> None:
    """Check that hostile texts mean nothing in Markdown, and that no table is broken by them."""
    assert not re.search(r"(?<!\\)(<b>|\[red)", out)
    for part in out.split("\n\n"):
        assert len({len(re.findall(r"(?<!\\)\|", line)) for line in part.splitlines() if line.startswith("|")}) <= 1


def statements_shown(err: str, store: Path) -> list[str]:
    """Return the statements that --show-sql printed, after asking the store each of them again."""
    statements = [statement for statement in err.partition("\n")[2].split(";\n") if statement.strip()]
    with closing(open_reader(address=None, token_file=None, store=str(store))) as reader:
        for statement in statements:
            reader.sql(statement)
    return statements


def assert_refused(printed: Printed, code: int, named: str) -> None:
    """Check that a command ended with its exit code, and with one line after its store's that has certain words."""
    ended, out, err = printed
    assert (ended, out) == (code, "")
    reading, refusal = err.splitlines()
    assert reading.startswith("reading ")
    assert refusal.startswith("collector: ")
    assert [word for word in named.split() if word not in refusal] == []
