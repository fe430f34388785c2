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
    ("line", "widest"),
    [
        ("compare --by interference", 160),
        ("compare --by interference --all", 160),
        ("plan", 160),
        ("scaling", 160),
        ("profile run-0", 200),
        ("profile run-0 run-1", 200),
        ("roofline", 200),
        ("jobs --all", 160),
        ("job 4711 --all", 160),
        ("idle", 160),
        (f"recommend mnist {WITH_PRICES}", 160),
    ],
)
def test_no_line_is_wider_than_the_terminal(call: Collector, line: str, widest: int) -> None:
    # Goldens have 80 and 120 columns.
    for columns in (60, widest):
        code, out, _ = call(*shlex.split(line), columns=columns)
        assert code == 0
        # A path in the next command stays whole.
        assert max(map(len, out.partition("Next:")[0].splitlines())) <= columns


@pytest.mark.parametrize("line", ["compare --by interference", "compare --by interference --json", "plan"])
def test_figures_are_read_once_and_for_a_first_screen_few_of_them(
    call: Collector, filled: Callable[[Fill], Path], line: str
) -> None:
    command, *arguments = shlex.split(line)
    _, _, err = call(command, *arguments, "--show-sql")
    (statement,) = (each for each in statements_shown(err, filled(FILLS[command])) if "run_metrics" in each)
    assert ("metric IN (" in statement) is ("--json" not in line)


@pytest.mark.parametrize("output_format", ["table", "markdown", "json"])
@pytest.mark.parametrize(
    ("command", "arguments"),
    [
        ("jobs", ("--all",)),
        ("job", (HOSTILE, "--all")),
        ("idle", ("--all",)),
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
    # The SQL is the same for all, and what was asked once is not asked again.
    shown = ["--show-sql"] if output_format == "table" else []
    printed = call(command, *arguments, "--format", output_format, *shown, columns=400, store=hostile)
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
        ("compare --by interference", "FROM", 3),
        ("scaling", "FROM", 3),
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
    script = """
import sys, gpuagent_collector.compare.comparison, gpuagent_collector.present.files
assert not {"scipy", "plotext", "pyarrow.compute", "pyarrow.parquet"} & set(sys.modules)
"""
    subprocess.run([sys.executable, "-c", script], check=True)


@pytest.mark.parametrize(
    ("line", "code", "named"),
    [
        ("compare satori openshift", 2, "satori; laptop"),
        ("compare --by label:rack", 1, "no run has the label rack"),
        ("compare --metric mfu_percent", 1, "mfu_percent; throughput"),
        ("compare --by interference --where 'repeat = 1; SELECT 1'", 2, "--where:"),
        ("""compare --by interference --where "color = 'red'" """, 2, "--where: color"),
        ("""compare --by interference --where "getenv('HOME') = ''" """, 2, "--where: getenv"),
        ("compare --where '(SELECT true FROM duckdb_settings())'", 2, "--where: duckdb_"),
        ("compare --by interference --metric sm_active_percent", 1, "sm_active_percent"),
        ("compare --workload bert", 2, "bert; mnist"),
        ("plan gcn", 1, "throughput two"),
        ("show laptop lab", 2, "compare laptop"),
        ("show gcn-1 gcn-2", 2, "compare gcn-1"),
        ("profile bert", 2, "bert is no run, workload or platform"),
        ("plan vgg16", 2, "vgg16; gcn, mnist"),
        ("plan --metric gpu_idle_percent", 1, "gpu_idle_percent"),
        ("plan --where 'repeat = '", 2, "--where: syntax"),
        ("scaling bert", 2, "bert; mnist, vgg16"),
        ("scaling --platform satori", 2, "satori; lab, laptop"),
        ("scaling --experiment e", 2, "experiment e;"),
        ("scaling mnist", 1, "2 ranks;"),
        ("profile bert-1", 2, "bert-1 collector runs"),
        ("profile run-0 --workload mnist", 2, "--workload --by"),
        ("profile podman --by environment", 2, "podman; bare, docker"),
        ("profile run-0 run-0", 2, "two different"),
        ("profile run-0 run-1 run-2", 2, "two different"),
        ("profile lab satori --by platform", 2, "satori; lab"),
        ("profile lab --by platform --workload bert", 2, "bert"),
        ("roofline --experiment e", 2, "experiment e"),
        ("roofline bert", 2, "bert; ceilings, gcn, gpt, mnist, resnet18"),
        ("roofline --platform satori", 2, "satori; lab"),
        ("roofline ceilings", 1, "roofline"),
        ("recommend bert", 2, "bert; ceilings, mnist"),
        ("recommend mnist --by label:rack", 1, "no run has the label rack"),
        ("recommend mnist --weigh time,cost", 1, "time cost"),
    ],
)
def test_misuse_ends_with_one_line_and_its_exit_code(call: Collector, line: str, code: int, named: str) -> None:
    assert_refused(call(*shlex.split(line)), code, named)


@pytest.mark.parametrize(
    ("line", "named"),
    [
        ("compare --by interference --metric speed", "speed collector schema --metrics"),
        ("plan --metric througput", "througput throughput?"),
        ("profile lab --by colour", "colour platform"),
        ("roofline --by platfrom", "platfrom platform?"),
    ],
)
def test_unknown_names_are_refused_before_anything_is_read(call: Collector, line: str, named: str) -> None:
    code, out, err = call(*shlex.split(line))
    assert_refused((code, out, f"reading nothing\n{err}"), 2, named)


@pytest.mark.parametrize(
    ("command", "option", "value", "message"),
    [
        *(("compare", "--delta", value, "--delta") for value in ("0", "-1", "many")),
        *(("plan", "--effect", value, "--effect") for value in ("nan", "0", "-1", "many")),
        ("recommend", "--weigh", "speed", "speed"),
        ("recommend", "--weigh", "time=0", "'0'"),
        ("recommend", "--weigh", "time=nan", "'nan'"),
        ("recommend", "--weigh", "time=", "''"),
        ("recommend", "--weigh", "time,time=2", "time"),
        ("recommend", "--weigh", "", "''"),
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
