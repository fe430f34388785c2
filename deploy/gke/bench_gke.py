#!/usr/bin/env python3
"""Measure accelerators on GKE one by one and compare them: a cluster each, deleted in any case.

Called by `make bench-gke`; see docs/deploy/gke.md.
"""

import os
import sys
import time
from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from deploy.gcp import options as shared
from deploy.gcp.accelerators import Accelerator, find_accelerator
from deploy.gcp.gcloud import Shell, say
from deploy.gke import launch_cluster
from deploy.gke.bench_job import EXPERIMENT, Bench
from deploy.kubernetes.problems import DeployError, MisuseError

_EXAMPLES = """examples:
  bench_gke.py --accelerators nvidia-l4,nvidia-tesla-t4 --registry us-docker.pkg.dev/PROJECT/REPOSITORY
  bench_gke.py --accelerators nvidia-l4 --registry us-docker.pkg.dev/PROJECT/REPOSITORY --dry-run -- --spot
Options after -- are for launch_cluster.py."""


def run(arguments: Sequence[str]) -> None:
    """Measure the accelerators named by the arguments, and print their comparison.

    Raises:
        DeployError: one of them could not be measured; the others are compared first.
    """
    options = shared.parser("Measure accelerators on GKE one by one and compare them.", _EXAMPLES)
    options.add_argument("--accelerators", required=True, metavar="GPU,GPU", help="names as for launch_cluster.py")
    options.add_argument("--registry", required=True, metavar="ADDRESS", help="registry of the images")
    options.add_argument(
        "--workloads-image",
        metavar="IMAGE",
        help="with {build} for PyTorch's build (default REGISTRY/gpuagent-workloads:{build})",
    )
    options.add_argument("--repeats", type=shared.positive, metavar="N", help="repeats of each workload on each node")
    options.add_argument("--hours", type=float, default=6.0, help="time limit of one accelerator (default 6)")
    options.add_argument("--folder", type=Path, metavar="DIR", help="folder of the data (default bench-gke/TIME)")
    options.add_argument("--dry-run", action="store_true", help="print commands that change something, run none")
    options.add_argument("launch", nargs="*", metavar="-- OPTION", help="options of launch_cluster.py")
    given = options.parse_args(arguments)
    accelerators = [find_accelerator(name) for name in given.accelerators.split(",") if name]
    if not accelerators:
        raise MisuseError("name at least one accelerator, such as --accelerators nvidia-l4,nvidia-tesla-t4")
    if not given.registry:
        raise MisuseError("give the registry of the images, such as --registry us-docker.pkg.dev/PROJECT/REPOSITORY")
    folder = given.folder or Path("bench-gke") / time.strftime("%Y%m%d-%H%M%S")
    # Leaves the user's own contexts unchanged. gcloud makes the folder.
    os.environ["KUBECONFIG"] = str(folder.resolve() / "kubeconfig")
    failed = [accelerator.name for accelerator in accelerators if not _try_measuring(accelerator, given, folder)]
    if _store(folder).exists() or (given.dry_run and len(failed) < len(accelerators)):
        compare = ["compare", "--by", "device", "--experiment", EXPERIMENT, "--store", str(_store(folder))]
        Shell(dry_run=given.dry_run).run([_collector(), *compare])
    if failed:
        data = f"; the data are in {folder}" if _store(folder).exists() else ""
        raise DeployError(f"failed: {', '.join(failed)}; see the errors above{data}")


def _try_measuring(accelerator: Accelerator, given: Namespace, folder: Path) -> bool:
    """Measure one accelerator; return whether that succeeded, and print its error if not."""
    dry_run = ["--dry-run"] if given.dry_run else []
    asked = ["--accelerator_type", accelerator.name, "--registry", given.registry, *dry_run, *given.launch]
    try:
        _measure(accelerator, given, launch_cluster.parser().parse_args(asked), folder)
    except DeployError as error:
        say(f"{accelerator.name}: {error}")
        if _follows_an_interrupt(error):
            raise KeyboardInterrupt from error
        return False
    return True


def _follows_an_interrupt(error: BaseException | None) -> bool:
    """Return whether Ctrl-C came before the error: a failed clean-up must not continue with the next cluster."""
    while error and not isinstance(error, KeyboardInterrupt):
        error = error.__context__
    return error is not None


def _measure(accelerator: Accelerator, given: Namespace, asked: Namespace, folder: Path) -> None:
    launched = launch_cluster.launch(asked)
    try:
        launched.deploy_agents(asked.registry, asked.tag, asked.platform)
        image = given.workloads_image or f"{given.registry}/gpuagent-workloads:{{build}}"
        build = accelerator.software.torch_build if accelerator.software else ""
        bench = Bench(
            shell=launched.shell,
            context=launched.context,
            nodes=asked.nodes,
            image=image.replace("{build}", build),
            platform=asked.platform,
            repeats=given.repeats,
            hours=given.hours,
        )
        bench.start()
        try:
            bench.wait()
        finally:
            # Also the data of an experiment that failed later.
            bench.fetch(_collector(), _store(folder), folder / accelerator.name)
    finally:
        launched.delete()


def _store(folder: Path) -> Path:
    return folder / "runs.duckdb"


def _collector() -> str:
    """Return the collector installed beside this Python, or the one on PATH."""
    beside = Path(sys.executable).with_name("collector")
    return str(beside) if beside.exists() else "collector"


if __name__ == "__main__":
    sys.exit(shared.main(run))
