"""`gpuagent image` with real builders, on a base of a shell alone, and the images of later runs."""

import json
import signal
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.support.containers import ULIMITS, Runtime, answers, import_image, on
from tests.support.images import import_for_charliecloud, make_tiny_base
from tests.support.servers import Node, until

pytestmark = pytest.mark.slow


@pytest.fixture
def node(sharing: Node) -> Node:
    return sharing


RECIPE = """
FROM base
ARG BUILD=none
{label}
COPY wheels /wheels
RUN ls /wheels && {last}
"""


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_tiny_base(tmp_path_factory.mktemp("tiny") / "root")


@pytest.fixture
def environment(runtime: Runtime, tiny: Path, node: Node) -> str:
    """The name of the runtime's environment, with a base to build on."""
    name = runtime.environment.partition(":")[0]
    if name == "charliecloud":
        del node.environment["GPUAGENT_CHARLIECLOUD_ARGS"]  # mounts what this image has no places for
        node.environment |= {"CH_IMAGE_STORAGE": str(node.folder / "storage")}
        import_for_charliecloud(node.environment, tiny, "base")
    else:
        import_image(client(runtime), tiny, "base")
        options = [] if name == "docker" else [*ULIMITS, "--pull=never"]
        node.environment[f"GPUAGENT_{name.upper()}_BUILD_ARGS"] = " ".join(["--network=host", *options])
    return name


def client(runtime: Runtime) -> Sequence[str]:
    return runtime.variables[f"GPUAGENT_{runtime.environment.partition(':')[0].upper()}"].split()


def recipe(node: Node, environment: str, last: str = "true") -> str:
    label = "" if environment == "charliecloud" else "LABEL gpuagent.build=${BUILD}"
    path = node.folder / "Recipe"
    path.write_text(RECIPE.format(label=label, last=last))
    return str(path)


def images(runtime: Runtime) -> list[str]:
    """Return the images there are, those without a name and those between included."""
    done = subprocess.run([*client(runtime), "images", "--all", "--quiet"], check=True, capture_output=True, text=True)
    return sorted(done.stdout.split())


@on("docker", "podman", "charliecloud")
def test_a_built_image_runs_and_its_build_time_is_recorded_with_the_run(node: Node, environment: str) -> None:
    build = node.run("gpuagent", "image", "build", environment, "--recipe", recipe(node, environment), "--json")
    made = json.loads(build.stdout)
    assert "gpuagent-0.1.0-py3-none-any.whl" in build.stderr
    assert made["build_seconds"] > 0
    name = f"{environment}:{made['name']}"
    node.run("gpuagent", "run", "--environment", name, "--", "sh", "-c", "test -d /wheels")
    sql = "SELECT image, digest, layers, size_bytes, build_seconds, push_seconds, pull_seconds FROM images"
    (row,) = node.ask(sql)
    assert row == {"image": made["name"], **{key: made[key] for key in row if key != "image"}}
    assert (row["layers"] is None) == (environment == "charliecloud")
    metrics = "SELECT metric, value FROM metrics WHERE metric LIKE 'image%' OR metric = 'process_start_seconds'"
    # The collector computes a run's metrics after it has stored the run's end.
    figures = {found["metric"]: found["value"] for found in until(lambda: node.ask(metrics), "the run's metrics")}
    assert figures["image_build_seconds"] == row["build_seconds"]
    assert figures["image_size_bytes"] == row["size_bytes"]
    assert "image_push_seconds" not in figures
    if environment == "charliecloud":
        assert list((node.folder / "storage" / "img").iterdir()) == [node.folder / "storage" / "img" / "base"]
        taken = node.run("gpuagent", "image", "build", environment, "--recipe", recipe(node, environment), code=2)
        assert "exists already" in taken.stderr


@on("docker", "podman", "charliecloud")
def test_a_failed_or_interrupted_build_leaves_nothing(node: Node, runtime: Runtime, environment: str) -> None:
    before = images(runtime) if environment != "charliecloud" else []
    path = recipe(node, environment, last="false")
    done = node.run("gpuagent", "image", "build", environment, "--recipe", path, "--tag", "broken", code=1)
    assert "with exit code" in done.stderr.splitlines()[-1]
    _assert_nothing_is_left(node, runtime, environment, before)
    path = recipe(node, environment, last="sleep 600")
    process = node.start("gpuagent", "image", "build", environment, "--recipe", path, "--tag", "broken", log="log")
    until(lambda: "constraints.txt" in (node.folder / "log").read_text(), "the recipe's last step")
    assert node.stop(process, signal.SIGINT) == 130
    assert (node.folder / "log").read_text().splitlines()[-1] == "gpuagent: interrupted"
    _assert_nothing_is_left(node, runtime, environment, before)


def _assert_nothing_is_left(node: Node, runtime: Runtime, environment: str, before: list[str]) -> None:
    assert not list(node.folder.glob("*broken*"))
    assert not list(node.folder.glob("spool/images/*"))
    if environment == "charliecloud":
        assert [path.name for path in (node.folder / "storage" / "img").iterdir()] == ["base"]
    else:
        assert images(runtime) == before
        assert runtime.containers() == []


@on("podman")
def test_pushing_and_pulling_are_timed_and_kept_with_the_image(node: Node, runtime: Runtime, environment: str) -> None:
    archive = f"oci-archive:{node.folder}/image.tar"
    options = ("--recipe", recipe(node, environment), "--push", archive, "--json")
    made = json.loads(node.run("gpuagent", "image", "build", environment, *options).stdout)
    assert made["push_seconds"] > 0
    assert made["pull_seconds"] is None
    again = node.run("gpuagent", "image", "pull", environment, made["name"], code=2)
    assert "is here already" in again.stderr
    assert answers([*client(runtime), "image", "rm", made["name"]])


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["build", "bare"], 2, "are built for docker, podman, apptainer, singularity, charliecloud, not for 'bare'"),
        (["build", "apptainer"], 1, "apptainer cannot be used here: there is no program 'missing'"),
        (["pull", "charliecloud", "registry.example/x"], 2, "name it by --tag"),
        (["build", "charliecloud", "--recipe", "nowhere"], 1, "nowhere: No such file or directory"),
        (["build", "charliecloud", "--recipe", "token"], 2, "has no ARG TORCH"),
    ],
)
def test_misuse_and_failure_are_one_line_without_any_builder(
    node: Node, words: list[str], code: int, said: str
) -> None:
    for name in ("ch-run", "ch-image"):  # never called before the mistake is found
        (node.folder / name).write_text("#!/bin/sh\nexit 1\n")
        (node.folder / name).chmod(0o755)
    node.environment |= {"PATH": f"{node.folder}:{node.environment['PATH']}", "GPUAGENT_APPTAINER": "missing"}
    (node.folder / "token").write_text("FROM base\n")
    options = ["--torch", "torch==2.4.1"] if words[-1] == "token" else []
    done = node.run("gpuagent", "image", *words, *options, code=code)
    assert said in done.stderr
    assert len(done.stderr.splitlines()) == 1
