"""The project's own images, built without a network on this machine's Python, and run like an operator would.

By default only the agent's, by Podman; `make images-check` builds each by Docker and by Podman, which takes minutes.
"""

import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from gpuagent.images.recipe import write_wheel
from tests.support.containers import (
    REPOSITORY,
    ULIMITS,
    Runtime,
    fakeroot_options,
    find_apptainer,
    import_image,
    need_fakeroot,
)
from tests.support.emulation import make_debian
from tests.support.images import make_base, write_wheels
from tests.support.servers import Node, until

pytestmark = pytest.mark.slow

# The limit of the agent's image beyond its base.
AGENT_LIMIT_BYTES = 120_000_000

RECIPE = REPOSITORY / "deploy" / "docker" / "agent.Dockerfile"
EXTRAS = {"agent": "", "collector": "[collector,lake]", "workloads": "[workloads]"}
EVERYTHING = pytest.mark.skipif("IMAGES_CHECK" not in os.environ, reason="`make images-check` builds it")
RUN_OPTIONS = {"docker": [], "podman": [*ULIMITS]}
BUILD_OPTIONS = {"docker": ["--force-rm"], "podman": [*RUN_OPTIONS["podman"], "--layers=false", "--pull=never"]}


# The name of a container engine, and the words of its client.
Engine = tuple[str, Sequence[str]]


@pytest.fixture(scope="session")
def python_base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_base(tmp_path_factory.mktemp("base") / "root")


@pytest.fixture(scope="session")
def context(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder that images are built from: the project's wheel, and this environment's packages as wheels."""
    folder = tmp_path_factory.mktemp("context")
    extras = EXTRAS.values() if "IMAGES_CHECK" in os.environ else (EXTRAS["agent"],)
    write_wheels(folder / "wheels", [f"gpuagent{extra}" for extra in extras])
    write_wheel(folder / "wheels")
    shutil.copy(REPOSITORY / "constraints.txt", folder / "wheels")
    return folder


@pytest.fixture
def engine(request: pytest.FixtureRequest, python_base: Path) -> Iterator[Engine]:
    """The name and the client of an engine that has the base."""
    runtime: Runtime = request.getfixturevalue(request.param)
    client = runtime.variables[f"GPUAGENT_{request.param.upper()}"].split()
    import_image(client, python_base, "gpuagent-base")
    yield request.param, client
    for image in ("gpuagent-built", "gpuagent-base"):
        subprocess.run([*client, "image", "rm", "--force", image], check=False, capture_output=True)


def build(engine: Engine, image: str, context: Path, *options: str) -> None:
    name, client = engine
    arguments = ["--build-arg=BASE=gpuagent-base", "--build-arg=PIP_NO_INDEX=1", "--build-arg=VERSION=0.1.0"]
    recipe = REPOSITORY / "deploy" / "docker" / f"{image}.Dockerfile"
    command = [*client, "build", "--network=host", *BUILD_OPTIONS[name], *options, *arguments, f"--file={recipe}"]
    done = subprocess.run([*command, "--tag=gpuagent-built", str(context)], check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]


def look(engine: Engine, image: str) -> dict[str, object]:
    done = subprocess.run([*engine[1], "image", "inspect", image], check=True, capture_output=True, text=True)
    (found,) = json.loads(done.stdout)
    return dict(found)


def container(engine: Engine, *words: str) -> list[str]:
    """Return the command that runs a container with a root that cannot be written."""
    name, client = engine
    return [*client, "run", "--rm", "--network=host", "--read-only", *RUN_OPTIONS[name], *words]


@pytest.mark.parametrize("engine", ["podman", pytest.param("docker", marks=EVERYTHING)], indirect=True)
def test_the_agent_in_its_small_image_streams_to_a_collector(engine: Engine, context: Path, node: Node) -> None:
    build(engine, "agent", context)
    image, base = look(engine, "gpuagent-built"), look(engine, "gpuagent-base")
    assert int(str(image["Size"])) - int(str(base["Size"])) < AGENT_LIMIT_BYTES
    node.serve()
    address, token = node.environment["GPUAGENT_COLLECTOR"], node.folder / "token of the container's user"
    token.write_bytes((node.folder / "token").read_bytes())
    token.chmod(0o600)
    os.chown(token, 65532, 0)
    mount = f"--mount=type=bind,source={token},target=/token,readonly"
    options = ["--env=GPUAGENT_TOKEN_FILE=/token", f"--env=GPUAGENT_COLLECTOR={address}", mount, "gpuagent-built"]
    command = container(engine, "--name=agent", *options, "start", "--platform", "contained")
    with (node.folder / "agent.log").open("w") as log, subprocess.Popen(command, stdout=log, stderr=log) as agent:
        try:
            sql = "SELECT container FROM sessions JOIN host_samples USING (session_id) LIMIT 1"
            until(lambda: node.ask(sql), "a sample")
            check = json.loads(re.findall(r"^ +CMD (\[.*)", RECIPE.read_text(), re.MULTILINE)[0])
            assert subprocess.run([*engine[1], "exec", "agent", *check], check=False).returncode == 0
            user = [*engine[1], "exec", "agent", "id", "-u"]
            assert subprocess.run(user, check=True, capture_output=True, text=True).stdout == "65532\n"
        finally:
            subprocess.run([*engine[1], "stop", "--time=20", "agent"], check=False, capture_output=True)
    assert agent.returncode == 0


@EVERYTHING
@pytest.mark.parametrize("engine", ["podman", "docker"], indirect=True)
def test_the_collector_in_its_image_refuses_the_network_without_a_certificate(engine: Engine, context: Path) -> None:
    build(engine, "collector", context)
    done = subprocess.run(container(engine, "gpuagent-built"), check=False, capture_output=True, text=True)
    assert done.returncode == 2, done.stderr
    assert "--insecure" in done.stderr
    store = ["--listen", "127.0.0.1:0", "--store", "/var/lib/gpuagent/runs.duckdb"]
    command = container(engine, "--name=collector", "gpuagent-built", "serve", *store)
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as collector:
        assert collector.stdout
        assert "collector listens on 127.0.0.1:" in collector.stdout.readline()
        subprocess.run([*engine[1], "stop", "--time=20", "collector"], check=False, capture_output=True)
    assert collector.returncode == 0


@EVERYTHING
@pytest.mark.parametrize("engine", ["podman", "docker"], indirect=True)
def test_the_workloads_train_in_their_image(engine: Engine, context: Path) -> None:
    build(engine, "workloads", context)
    train = ["python3", "-m", "gpuagent_workloads", "run", "mnist", "--steps", "2", "--warmup", "1"]
    command = container(engine, "--tmpfs=/tmp", "gpuagent-built", *train)
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@EVERYTHING
@pytest.mark.parametrize(("machine", "architecture"), [("ppc64le", "ppc64le"), ("aarch64", "arm64")])
def test_the_agent_s_recipe_makes_an_image_for_another_processor(
    machine: str, architecture: str, podman: Runtime, tmp_path: Path
) -> None:
    """The base is as in docs/deploy/power.md, and what it has is not pinned to the index's versions."""
    engine = "podman", podman.variables["GPUAGENT_PODMAN"].split()
    import_image(engine[1], make_debian(machine), "gpuagent-base", f"--arch={architecture}")
    wheels = write_wheels(tmp_path / "wheels", ["gpuagent"])
    write_wheel(wheels)
    pinned = (REPOSITORY / "constraints.txt").read_text()
    (wheels / "constraints.txt").write_text(re.sub(r"(?m)^(grpcio|protobuf|psutil|PyYAML)==.*\n", "", pinned))
    build(engine, "agent", tmp_path, f"--platform=linux/{architecture}")
    done = subprocess.run(container(engine, "gpuagent-built", "info"), check=True, capture_output=True, text=True)
    assert machine in done.stdout


DEFINED = {
    "agent": "gpuagent --version",
    "collector": "collector --version",
    "workloads": "python3 -m gpuagent_workloads run mnist --steps 2 --warmup 1",
}


@pytest.mark.parametrize("image", ["agent", *(pytest.param(name, marks=EVERYTHING) for name in list(DEFINED)[1:])])
def test_a_definition_file_is_built_on_a_folder_without_a_network_and_runs(
    image: str, node: Node, context: Path, python_base: Path
) -> None:
    node.environment["GPUAGENT_APPTAINER"] = str(find_apptainer())
    need_fakeroot()
    node.environment["GPUAGENT_APPTAINER_BUILD_ARGS"] = fakeroot_options()
    definition = REPOSITORY / "deploy" / "apptainer" / f"{image}.def"
    parts = ("--recipe", str(definition), "--base", str(python_base), "--wheels", str(context / "wheels"))
    # Under a time limit of the test's own: workloads take minutes.
    build = node.start("gpuagent", "image", "build", "apptainer", *parts, "--tag", "image.sif", log="build.log")
    assert build.wait() == 0, (node.folder / "build.log").read_text()[-2000:]
    node.run("gpuagent", "run", "--environment", "apptainer:image.sif", "--", *DEFINED[image].split())
