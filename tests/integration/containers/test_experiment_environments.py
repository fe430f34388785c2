"""One experiment file in every environment of this machine: the costs of each, from its image to the first step."""

import json
from pathlib import Path

import psutil
import pytest

from tests.support.containers import IMAGE, ULIMITS, Runtime, apptainer_program, fakeroot_options
from tests.support.images import import_for_charliecloud
from tests.support.servers import Node

pytestmark = pytest.mark.slow

# Reports as a workload does, without importing torch in every environment.
PROGRAM = """
import json, os, time
with open(os.environ["GPUAGENT_RUN_DIR"] + "/events.0.0.jsonl", "w") as file:
    for event in ({"event": "phase", "name": "measure"}, {"event": "step", "phase": "measure", "step": 0}):
        print(json.dumps({"t": time.time_ns(), **event}), file=file)
"""

EXPERIMENT = """
name: environments
question: What do containers and Slurm cost on this machine, from the launch to the end?
repeats: 1
environments: [bare, "docker:built", "podman:built", "charliecloud:{folder}/built", {more}slurm]
workloads:
  - command: [python3, -c, {program}]
answer:
  - compare --by environment --all
"""

IMAGES = {"docker", "podman", "charliecloud"}


def build(node: Node, root: Path) -> None:
    """Build an image for each environment that has some: the test's root file system, with something added."""
    recipe = node.folder / "Recipe"
    recipe.write_text(f"FROM {IMAGE}\nCOPY wheels/constraints.txt /\n")
    node.environment |= {
        "GPUAGENT_PODMAN_BUILD_ARGS": f"--pull=never {' '.join(ULIMITS)}",
        "CH_IMAGE_STORAGE": str(node.folder / "storage"),
    }
    import_for_charliecloud(node.environment, root, IMAGE)
    node.environment["PATH"] = f"/usr/bin:/bin:/usr/sbin:{node.environment['PATH']}"
    for name in sorted(IMAGES):
        node.run("gpuagent", "image", "build", name, "--recipe", str(recipe), "--tag", "built")


def build_for_apptainer(node: Node, root: Path) -> None:
    definition = node.folder / "Recipe.def"
    definition.write_text("Bootstrap: docker\nFrom: any\n%files\n    wheels/constraints.txt /\n")
    node.environment["GPUAGENT_APPTAINER_BUILD_ARGS"] = fakeroot_options()
    options = ("--recipe", str(definition), "--base", str(root), "--tag", "built.sif")
    node.run("gpuagent", "image", "build", "apptainer", *options)


def left_by_runs(node: Node) -> list[object]:
    """Return the processes and mounts of runs that are still there."""
    every = ((process.pid, process.info["environ"] or {}) for process in psutil.process_iter(["environ"]))
    places = [line.split()[1] for line in Path("/proc/self/mounts").read_text().splitlines()]
    return [
        *(pid for pid, variables in every if variables.get("GPUAGENT_RUN_DIR", "").startswith(str(node.folder))),
        *(place for place in places if place.startswith(str(node.folder))),
    ]


def test_one_file_compares_all_environments_and_leaves_nothing(
    node: Node,
    docker: Runtime,
    podman: Runtime,
    charliecloud: Runtime,
    slurm: Runtime,
    root: Path,
    request: pytest.FixtureRequest,
) -> None:
    runtimes = [docker, podman, charliecloud, slurm]
    has_apptainer = apptainer_program() is not None
    if has_apptainer:
        runtimes.append(request.getfixturevalue("apptainer"))
    for runtime in runtimes:
        node.environment.update(runtime.variables)
    node.serve()
    build(node, root)
    more = ""
    if has_apptainer:
        build_for_apptainer(node, root)
        more = f'"apptainer:{node.folder}/built.sif", '
    path = node.folder / "environments.yaml"
    path.write_text(EXPERIMENT.format(folder=node.folder, more=more, program=json.dumps(PROGRAM)))
    experiment = node.start("gpuagent", "experiment", "run", "environments.yaml", log="experiment.log")
    code, printed = experiment.wait(), (node.folder / "experiment.log").read_text()
    assert code == 0, printed
    for words in ("Image on disk", "Image layers", "Image build", "Start to process", "Start to first step's end"):
        assert words in printed, words
    figures = _figures(node)
    images = IMAGES | ({"apptainer"} if has_apptainer else set())
    assert set(figures) == {"bare", *images, "slurm"}
    for name, metrics in figures.items():
        assert 0 < metrics["first_report_seconds"] < metrics["time_to_first_step_seconds"]
        # Charliecloud becomes the program, so nobody sees from outside when; Apptainer does so with a mounted image.
        if name != "apptainer":
            assert ("process_start_seconds" in metrics) == (name != "charliecloud")
        assert {"image_size_bytes", "image_build_seconds"} <= set(metrics) or name not in images
        assert ("image_layers" in metrics) == (name in ("docker", "podman"))
    small = ("--layer", "relu", "--inputs", "1", "--side", "8", "--batch-size", "1", "--steps", "1", "--warmup", "1")
    node.run("gpuagent", "run", "--environment", podman.environment, "layer", *small)
    assert [runtime.containers() for runtime in runtimes] == [[]] * len(runtimes)
    assert left_by_runs(node) == []


def _figures(node: Node) -> dict[str, dict[str, float]]:
    """Return the metrics of each run by its environment."""
    sql = "SELECT environment, metric, value FROM runs JOIN metrics USING (run_id) WHERE status = 'succeeded'"
    figures: dict[str, dict[str, float]] = {}
    for row in node.ask(sql):
        figures.setdefault(row["environment"], {})[row["metric"]] = row["value"]
    return figures
