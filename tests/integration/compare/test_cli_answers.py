"""The commands that answer as they are used: their screens, hostile names, their SQL, and misuse."""

import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from gpuagent_common.text import is_dangerous
from tests.integration.compare.filled import FILLS, HOSTILE_FILLS, Fill
from tests.integration.recommend.scenes import PRICES
from tests.support.commands import (
    HOSTILE,
    Collector,
    assert_inert,
    assert_inert_markdown,
    assert_refused,
    statements_shown,
)

pytestmark = pytest.mark.slow

WITH_PRICES = f"--prices {shlex.quote(str(PRICES))}"


@pytest.mark.parametrize(
    ("line", "widths"),
    [
        ("compare --by interference", (60, 80, 100, 160)),
        ("compare --by interference --all", (60, 80, 100, 160)),
        ("plan", (60, 80, 160)),
        ("scaling", (60, 80, 120, 160)),
        ("profile run-0", (60, 80, 120, 200)),
        ("profile run-0 run-1", (60, 80, 120, 200)),
        ("roofline", (60, 80, 120, 200)),
        (f"recommend mnist {WITH_PRICES}", (60, 80, 160)),
    ],
)
def test_no_line_is_wider_than_the_terminal(call: Collector, line: str, widths: tuple[int, ...]) -> None:
    for columns in widths:
        code, out, _ = call(*shlex.split(line), columns=columns)
        assert code == 0
        assert max(map(len, out.splitlines())) <= columns


@pytest.mark.parametrize("output_format", ["table", "markdown", "json"])
@pytest.mark.parametrize(
    ("command", "arguments"),
    [
        ("compare", ("--all",)),
        ("scaling", ()),
        ("profile", ("run-0", "run-1")),
        ("roofline", ()),
        ("recommend", (HOSTILE,)),
    ],
    ids=HOSTILE_FILLS,
)
def test_hostile_names_do_nothing_to_a_terminal_and_mean_nothing_in_markdown(
    call: Collector, filled: Callable[[Fill], Path], command: str, arguments: tuple[str, ...], output_format: str
) -> None:
    hostile = filled(HOSTILE_FILLS[command])
    printed = call(command, *arguments, "--format", output_format, "--show-sql", columns=400, store=hostile)
    assert_inert(printed)
    if output_format == "markdown":
        assert_inert_markdown(printed[1])


def test_hostile_reasons_of_failed_traces_do_nothing_to_a_terminal(
    call: Collector, filled: Callable[[Fill], Path]
) -> None:
    printed = call("profile", "failed", store=filled(HOSTILE_FILLS["profile"]))
    assert_inert(printed, code=1)
    assert printed[1] == ""


def test_csv_is_harmless_on_a_terminal_and_exact_elsewhere(
    call: Collector, filled: Callable[[Fill], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    arguments = ("profile", "run-0", "--format", "csv")
    hostile = filled(HOSTILE_FILLS["profile"])
    assert HOSTILE in call(*arguments, store=hostile)[1]
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    _, out, _ = call(*arguments, store=hostile)
    assert not [character for character in out if character != "\n" and is_dangerous(character)]


@pytest.mark.parametrize(
    ("line", "table", "number"),
    [
        ("compare --by interference", "FROM", 10),
        ("scaling", "FROM", 10),
        ("profile run-0 run-1", "FROM op_times", 1),
        ("roofline", "FROM results", 1),
        (f"recommend mnist {WITH_PRICES}", "FROM", 9),
    ],
)
def test_the_sql_behind_the_answer_is_shown_so_that_any_client_can_ask_it(
    call: Collector, filled: Callable[[Fill], Path], line: str, table: str, number: int
) -> None:
    command, *arguments = shlex.split(line)
    _, _, err = call(command, *arguments, "--format", "csv", "--show-sql")
    statements = statements_shown(err, filled(FILLS[command]))
    assert sum(table in statement for statement in statements) >= number


def test_the_sql_shown_has_each_value_in_its_own_place(call: Collector) -> None:
    _, _, err = call("compare", "--workload", "why? or 'why'?", "--experiment", "?", "--show-sql")
    assert "run.workload = 'why? or ''why''?' AND run.experiment = '?'" in err


def test_nothing_slow_to_import_is_needed_beside_the_answer() -> None:
    script = "import sys, gpuagent_collector.compare.comparison; assert not {'scipy', 'plotext'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", script], check=True)


@pytest.mark.parametrize(
    ("line", "code", "message"),
    [
        ("compare satori openshift", 2, "no run has the platform satori; there are: laptop\n"),
        ("compare --by label:rack", 1, "nothing to compare: no run has a value of label:rack; try another --by\n"),
        ("compare --metric mfu_percent", 1, "no run has the metric mfu_percent; they have: "),
        ("compare --by interference --where 'repeat = 1; SELECT 1'", 2, "--where: the text is more than one condition"),
        ("""compare --by interference --where "color = 'red'" """, 2, "--where: there is no column color"),
        (
            """compare --by interference --where "getenv('HOME') = ''" """,
            2,
            "--where: a query cannot call the function getenv",
        ),
        (
            "compare --where '(SELECT true FROM duckdb_settings())'",
            2,
            "--where: a query cannot call the table function duckdb_",
        ),
        ("compare --by interference --metric sm_active_percent", 1, "no side and its baseline both have the metric "),
        ("compare --workload bert", 2, "no run has the workload bert; there are: mnist\n"),
        ("plan gcn", 1, "the spread of throughput is unknown: it takes two or more"),
        ("plan vgg16", 2, "no run has the workload vgg16; there are: gcn, mnist"),
        ("plan --metric gpu_idle_percent", 1, "the spread of gpu_idle_percent is unknown"),
        ("plan --where 'repeat = '", 2, "--where: syntax error"),
        ("scaling bert", 2, "no run has the workload bert; there are: mnist, vgg16\n"),
        ("scaling --platform satori", 2, "none of these runs has the platform satori; there are: lab, laptop\n"),
        ("scaling --experiment e", 2, "no run has the experiment e; "),
        ("scaling mnist", 1, "no scaling to show: all runs had 2 ranks; run another number, such as "),
        ("profile bert-1", 2, "no run has the id bert-1; list runs with `collector runs`"),
        ("profile run-0 --workload mnist", 2, "--workload and --experiment need --by"),
        ("profile podman --by environment", 2, "no run has the environment podman; there are: bare, docker\n"),
        ("profile run-0 run-0", 2, "name one run, or two different ones"),
        ("profile run-0 run-1 run-2", 2, "name one run, or two different ones"),
        ("profile lab satori --by platform", 2, "no run has the platform satori; there are: lab"),
        ("profile lab --by platform --workload bert", 2, "no run has the workload bert"),
        ("roofline --experiment e", 2, "no run has the experiment e"),
        (
            "roofline bert",
            2,
            "none of these runs has the workload bert; there are: ceilings, gcn, gpt, mnist, resnet18\n",
        ),
        ("roofline --platform satori", 2, "none of these runs has the platform satori; there are: lab\n"),
        ("roofline ceilings", 1, "no roofline to draw: "),
        ("recommend bert", 2, "no run has the workload bert; there are: ceilings, mnist"),
        ("recommend mnist --by label:rack", 1, "nothing to compare: no run has a value of label:rack"),
        ("recommend mnist --weigh time,cost", 1, "no two sides with like runs both have time and cost"),
    ],
)
def test_misuse_ends_with_one_line_and_its_exit_code(call: Collector, line: str, code: int, message: str) -> None:
    assert_refused(call(*shlex.split(line)), code, f"collector: {message}")


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (
            "compare --by interference --metric speed",
            "--metric speed is unknown; `collector schema --metrics` lists all",
        ),
        ("plan --metric througput", "--metric througput is unknown; did you mean throughput?"),
        ("profile lab --by colour", "--by colour is unknown; there are platform"),
        ("roofline --by platfrom", "--by platfrom is unknown; did you mean platform?"),
    ],
)
def test_unknown_names_are_refused_before_anything_is_read(call: Collector, line: str, message: str) -> None:
    code, out, err = call(*shlex.split(line))
    assert (code, out) == (2, "")
    assert err.startswith(f"collector: {message}")
    assert err.count("\n") == 1


@pytest.mark.parametrize(
    ("command", "option", "value", "message"),
    [
        *(("compare", "--delta", value, "--delta") for value in ("0", "-1", "many")),
        *(("plan", "--effect", value, "--effect") for value in ("nan", "0", "-1", "many")),
        ("recommend", "--weigh", "speed", "'speed' is no criterion; use time, energy or cost"),
        ("recommend", "--weigh", "time=0", "a weight must be a number above 0, not '0'"),
        ("recommend", "--weigh", "time=nan", "a weight must be a number above 0, not 'nan'"),
        ("recommend", "--weigh", "time=", "a weight must be a number above 0, not ''"),
        ("recommend", "--weigh", "time,time=2", "time is given twice"),
        ("recommend", "--weigh", "", "'' is no criterion"),
        ("recommend", "--delta", "nan", "--delta"),
    ],
)
def test_a_value_that_an_option_cannot_have_is_refused(
    call: Collector, command: str, option: str, value: str, message: str
) -> None:
    code, out, err = call(command, *(["mnist"] if command == "recommend" else []), option, value)
    assert (code, out) == (2, "")
    assert message in err
    assert "Traceback" not in err
