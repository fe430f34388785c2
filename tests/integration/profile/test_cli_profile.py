"""`collector profile` as it is used: what it prints, and how it ends."""

import json
from pathlib import Path

import pytest

from gpuagent_common.text import is_dangerous
from tests.integration.profile.traced import add_traced, kernel, operator, recorded
from tests.support.commands import (
    HOSTILE,
    Collector,
    asked_of,
    assert_golden,
    assert_inert,
    assert_inert_markdown,
    assert_refused,
    csv_rows,
    made_up,
    statements_shown,
)

GOLDEN = Path(__file__).with_name("golden_80_columns.txt")

OTHER_KERNEL = (
    "void cudnn::ops::nchwToNhwcKernel<float, float, float, false, true>(cudnn::ops::nchw2nhwc_params_t<float>)"
)


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with what an H200 was recorded to run, and the same with another convolution in a container."""
    path = tmp_path_factory.mktemp("store") / "runs.duckdb"
    bare = recorded()
    docker = [
        {**one, "name": OTHER_KERNEL, "gpu_seconds": 2e-4} if "implicit_convolve" in one["name"] else one
        for one in bare
    ]
    with made_up(path) as store:
        node = store.node("spruce", "lab", gpus=["NVIDIA H200"])
        for repeat in range(3):
            for environment, operations in (("bare", bare), ("docker", docker)):
                texts = {"cudnn_version": {"bare": "91002", "docker": "90100"}[environment]}
                rate = 1000.0 + repeat
                add_traced(store, node, operations, environment=environment, throughput=rate, texts=texts)
    return path


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store in which every text that is shown would act on a terminal."""
    path = tmp_path_factory.mktemp("store") / "hostile.duckdb"
    with made_up(path) as store:
        node = store.node(HOSTILE, HOSTILE, gpus=[HOSTILE])
        for number in range(2):
            names = (HOSTILE, f"{number}{HOSTILE}", HOSTILE * 60)
            kernels = [kernel(name, 1.0 + number) for name in names]
            named = {"environment": f"{number}{HOSTILE}", "image": HOSTILE, "workload": HOSTILE}
            add_traced(store, node, [*kernels, operator(HOSTILE, 1.0)], texts={HOSTILE: f"{number}"}, **named)  # type: ignore[arg-type]
        store.run("failed", node, start_seconds=9999, texts={"trace_failed": HOSTILE})
    return path


@pytest.fixture
def profile(filled: Path, collector: Collector) -> Collector:
    """Run `collector profile` on the store and return exit code, stdout and stderr."""
    return asked_of(filled, collector, "profile")


def test_eighty_columns_read_as_agreed(profile: Collector) -> None:
    code, out, _ = profile("bare", "docker", "--by", "environment")
    assert code == 0
    assert_golden(out, GOLDEN)


@pytest.mark.parametrize("columns", [60, 80, 120, 200])
@pytest.mark.parametrize("sides", [("run-0",), ("run-0", "run-1")])
def test_no_line_is_wider_than_the_terminal(profile: Collector, columns: int, sides: tuple[str, ...]) -> None:
    _, out, _ = profile(*sides, columns=columns)
    assert max(map(len, out.splitlines())) <= columns


def test_as_many_operations_are_shown_as_asked_for_and_the_rest_is_counted(profile: Collector) -> None:
    _, out, _ = profile("run-0", "--top", "2")
    assert "16 more, none above " in out


def test_csv_has_all_operations_with_their_names_in_full(profile: Collector) -> None:
    _, out, _ = profile("run-0", "run-1", "--format", "csv", "--top", "1")
    lines = csv_rows(out)
    first = lines[0]
    assert (first["table"], first["kind"], first["name"]) == ("kernels", "kernel", OTHER_KERNEL)
    assert (first["a_seconds"], first["a_calls"], first["b_calls"], first["only_on"]) == ("", "", "1", "b")
    assert float(first["b_seconds"]) == float(first["difference_seconds"]) == pytest.approx(2e-4 / 3)
    assert len(lines) == 19 + 2


def test_json_holds_the_answer_the_sides_and_the_tables(profile: Collector) -> None:
    found = json.loads(profile("bare", "docker", "--by", "environment", "--json")[1])
    assert found["answer"].startswith("A step of docker takes 55.0 µs longer on the GPU than one of bare")
    assert [side["run_id"] for side in found["sides"]] == ["run-2", "run-3"]
    assert found["differing"]["cuDNN version"] == [["91002"], ["90100"]]
    kernels = found["tables"]["kernels"]
    assert [one["only_on"] for one in kernels["operations"]][:3] == ["b", "a", None]
    assert sum(one["a_seconds"] or 0 for one in kernels["operations"]) == pytest.approx(kernels["total_seconds"][0])
    assert [warning["code"] for warning in found["warnings"]] == ["one_run"]


@pytest.mark.parametrize("output_format", ["table", "markdown", "json"])
def test_hostile_names_do_nothing_to_a_terminal(profile: Collector, hostile: Path, output_format: str) -> None:
    assert_inert(profile("run-0", "run-1", "--format", output_format, "--show-sql", columns=400, store=hostile))


def test_hostile_names_mean_nothing_in_markdown(profile: Collector, hostile: Path) -> None:
    assert_inert_markdown(profile("run-0", "run-1", "--format", "markdown", store=hostile)[1])


def test_hostile_reasons_of_failed_traces_do_nothing_to_a_terminal(profile: Collector, hostile: Path) -> None:
    code, out, err = profile("failed", store=hostile)
    assert (code, out) == (1, "")
    assert not [character for character in err if character != "\n" and is_dangerous(character)]


def test_csv_is_harmless_on_a_terminal_and_exact_elsewhere(
    profile: Collector, hostile: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert HOSTILE in profile("run-0", "--format", "csv", store=hostile)[1]
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    _, out, _ = profile("run-0", "--format", "csv", store=hostile)
    assert not [character for character in out if character != "\n" and is_dangerous(character)]


def test_the_sql_behind_the_answer_is_shown_so_that_any_client_can_ask_it(profile: Collector, filled: Path) -> None:
    _, _, err = profile("run-0", "run-1", "--format", "csv", "--show-sql")
    statements = statements_shown(err, filled)
    assert any("FROM op_times" in statement for statement in statements)


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (("bert-1",), 2, "collector: no run has the id bert-1; list runs with `collector runs`"),
        (("run-0", "--workload", "mnist"), 2, "collector: --workload and --experiment go with --by"),
        (
            ("podman", "--by", "environment"),
            2,
            "collector: no run has the environment podman; there are: bare, docker\n",
        ),
    ],
)
def test_misuse_ends_with_one_line_and_its_exit_code(
    profile: Collector, arguments: tuple[str, ...], code: int, message: str
) -> None:
    assert_refused(profile(*arguments), code, message)
