"""Stores with hostile rows in every table, an input being a seed: each command, page and metric answers or refuses.

Neither may end with an error of Python or of DuckDB, which would be everybody's.
"""

import io
import re
import shutil
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from functools import cache
from pathlib import Path
from random import Random
from unittest.mock import patch

import duckdb

from gpuagent_collector.cli import main
from gpuagent_collector.metrics.summarize import summarize_runs
from gpuagent_collector.query.execute import Limits
from gpuagent_collector.store import Store
from gpuagent_collector.times import utc_now
from gpuagent_collector.web.asker import Asker
from gpuagent_collector.web.site import Sources, pages
from gpuagent_common.errors import GpuAgentError
from tests.fuzz.hostile_rows import add_hostile_rows
from tests.fuzz.tally import Attempt
from tests.integration.compare.filled import FILLS
from tests.support.commands import made_up

TOKENS: Sequence[bytes] = ()

# Words of a command; RUN, NODE and WORKLOAD stand for some of the store, and OUT for a folder.
_COMMANDS = (
    *(
        "runs",
        "runs --json",
        "runs RUN",
        "runs --parts",
        "nodes",
        "nodes --json",
        "watch --once",
        "watch --json --once",
    ),
    *("show RUN", "show RUN --json", "show RUN --all", "show WORKLOAD", "compare", "compare --json", "compare --all"),
    *("compare --by environment", "compare --by parameter:ranks", "compare --by label:until", "compare --by gpu"),
    *(
        "outliers",
        "outliers --json",
        "peers RUN",
        "peers NODE --json",
        "history",
        "history --json",
        "plan",
        "plan --json",
    ),
    *("scaling", "scaling --json", "serving", "serving --json", "roofline", "roofline --json", "profile RUN"),
    *("profile RUN RUN --json", "trace RUN --output OUT/t.json", "recommend WORKLOAD", "recommend WORKLOAD --json"),
    *(
        "report OUT/r.html",
        "export --output OUT/export",
        "check",
        "delete --run RUN --yes",
        "plot throughput --output OUT/p.svg",
    ),
)
_PAGES = ("/", "/report", "/metrics", "/nodes/", "/runs/")
_READERS_AN_INPUT = 3

# As DuckDB begins a message: none of them is an answer.
_OF_DUCKDB = re.compile(r"\b[A-Z][A-Za-z ]+ Error: ")


@contextmanager
def opened(folder: Path) -> Iterator[Attempt]:
    """Make a store for each kind of question, of which each input damages a copy."""
    import gpuagent_collector.report.page  # takes a second  # noqa: F401

    @cache
    def make(name: str) -> Path:
        path = folder / f"{name}.duckdb"
        with made_up(path) as store:
            FILLS[name](store)
        return path

    def attempt(data: bytes) -> None:
        random = Random(data)
        out = folder / "out"
        out.mkdir()
        try:
            path = Path(shutil.copy(make(random.choice(list(FILLS))), folder / "damaged.duckdb"))
            _read_damaged(path, out, random)
        finally:
            shutil.rmtree(out)

    yield attempt


def _read_damaged(path: Path, out: Path, random: Random) -> None:
    with Store.open(str(path)) as store:
        with store.connect() as connection:
            add_hostile_rows(connection, random)
            known = _find_names(connection)
            summarize_runs(connection, known["RUN"], utc_now())
        readers = random.sample((*_COMMANDS, *_PAGES), _READERS_AN_INPUT)
        for page in sorted({*readers} & {*_PAGES}):
            _answer_page(store, page, known, random)
    for words in [each for each in readers if each not in _PAGES]:
        given = [
            random.choice(known[word]) if known.get(word) else word.replace("OUT", str(out)) for word in words.split()
        ]
        _run_command([*given[:1], "--store", str(path), *given[1:]])


def _find_names(connection: duckdb.DuckDBPyConnection) -> dict[str, list[str]]:
    columns = {
        "RUN": "run_id FROM run_requests",
        "WORKLOAD": "workload FROM run_requests",
        "NODE": "hostname FROM sessions",
    }
    found = {}
    for name, column in columns.items():
        texts = [text for (text,) in connection.execute(f"SELECT DISTINCT {column} ORDER BY ALL").fetchall()]
        # An empty word, or one with a dash, is a mistake of who gives it.
        found[name] = [text for text in texts if text and "\0" not in text and not text.startswith("-")]
    return found


def _run_command(words: Sequence[str]) -> None:
    """Run a command in this process, and check how it ended."""
    printed = [io.TextIOWrapper(io.BytesIO(), encoding="utf-8") for _ in range(2)]
    with redirect_stdout(printed[0]), redirect_stderr(printed[1]), patch.object(sys, "argv", ["collector", *words]):
        try:
            main()
        except SystemExit as end:
            code = end.code
    printed[1].flush()
    errors = printed[1].buffer.getvalue().decode()
    assert code in (0, 1, 2), f"{words} ended with {code}: {errors}"
    assert not _OF_DUCKDB.search(errors), f"{words}: {errors}"


def _answer_page(store: Store, path: str, known: dict[str, list[str]], random: Random) -> None:
    sources = Sources(ask=Asker(store.connect, Limits()), store="runs.duckdb", instruments=(), is_ready=lambda: True)
    (page,) = (page for page in pages(sources) if page.path == path)
    names = {"/nodes/": known["NODE"], "/runs/": known["RUN"]}.get(path)
    query = {} if names is None else {"name": random.choice(names) if names else "none"}
    try:
        page.answer(query)
    except GpuAgentError as error:
        assert not _OF_DUCKDB.search(str(error)), f"{path}: {error}"
