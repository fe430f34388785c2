"""`gpuagent image`: build the image of the workloads, or pull it, with the time that it takes."""

import json
import signal
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from gpuagent.locations import SPOOL_VARIABLE

if TYPE_CHECKING:
    from gpuagent.images.make import MadeImage, Maker

_BYTE_UNITS = ((10**9, "GB"), (10**6, "MB"), (10**3, "kB"))

_spool = click.option(
    "--spool",
    metavar="DIR",
    type=click.Path(path_type=Path, file_okay=False),
    envvar=SPOOL_VARIABLE,
    help=f"Where the agent that will use the image keeps things (or {SPOOL_VARIABLE}).",
)
_json = click.option("--json", "as_json", is_flag=True, help="Print what is known of the image as JSON.")


@click.group()
def command() -> None:
    """Build the image of the workloads for an environment, or pull it.

    How long that took is kept on the node, and later runs in the image send it along: the table `images` and `collector
    compare` have it.
    """


@command.command(
    epilog="""\b
Examples:
  gpuagent image build docker
  gpuagent image build podman --push registry.example/me/gpuagent-workloads
  gpuagent image build apptainer --tag ~/images/workloads.sif
  gpuagent image build docker --torch torch==2.4.1 --base python:3.11-slim-bookworm
  gpuagent image build charliecloud --wheels /shared/wheels"""
)
@click.argument("env")
@click.option("--tag", help="Name of the image; a path for apptainer, singularity and charliecloud.")
@click.option(
    "--recipe",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Another recipe than the project's: a Dockerfile, or a definition file. It finds gpuagent in wheels/.",
)
@click.option("--base", metavar="IMAGE", help="The image to begin with; it has a python3 with pip and venv.")
@click.option("--torch", metavar="REQUIREMENT", help="The torch that the GPU wants, as torch==2.4.1.")
@click.option("--index", metavar="URL", help="Where pip looks as well, as for torch without CUDA.")
@click.option(
    "--wheels",
    type=click.Path(path_type=Path, file_okay=False, exists=True),
    help="Install from the wheels in this folder alone, as `pip download` makes one; no network is needed.",
)
@click.option("--push", "push_to", metavar="REF", help="Then bring it to this place in a registry.")
@_spool
@_json
def build(
    *,
    env: str,
    tag: str | None,
    recipe: Path | None,
    base: str | None,
    torch: str | None,
    index: str | None,
    wheels: Path | None,
    push_to: str | None,
    spool: Path | None,
    as_json: bool,
) -> None:
    """Build the image of the workloads for ENV: docker, podman, apptainer, singularity or charliecloud.

    In it is the gpuagent that is installed here. Nothing is taken from a cache of earlier builds, so that the seconds
    are those of a whole build. What the tools say goes to stderr.
    """
    from gpuagent.images.builders import find_builder
    from gpuagent.images.recipe import Ingredients, find_recipe

    builder = find_builder(env)
    ingredients = Ingredients(
        recipe=recipe or find_recipe(builder.recipe), base=base, torch=torch, index=index, wheels=wheels
    )
    _stop_on_signals()
    made = _maker(env, spool).build(tag or builder.tag, ingredients, push_to)
    _print(made, as_json=as_json)


@command.command(
    epilog="""\b
Examples:
  gpuagent image pull docker registry.example/me/gpuagent-workloads:1
  gpuagent image pull apptainer oras://registry.example/me/workloads:1 --tag workloads.sif"""
)
@click.argument("env")
@click.argument("reference")
@click.option("--tag", help="Path of the image for apptainer, singularity and charliecloud.")
@_spool
@_json
def pull(*, env: str, reference: str, tag: str | None, spool: Path | None, as_json: bool) -> None:
    """Pull the image REFERENCE for ENV, and keep how long it took."""
    _stop_on_signals()
    made = _maker(env, spool).pull(reference, tag)
    _print(made, as_json=as_json)


def _maker(env: str, spool: Path | None) -> "Maker":
    import os

    from gpuagent import locations
    from gpuagent.images.builders import find_builder
    from gpuagent.images.make import Maker
    from gpuagent.images.records import ImageRecords

    mounts = Path("/proc/self/mounts").read_text()
    folder = locations.spool_directory(spool, environment=os.environ, mounts=mounts)
    locations.make_private(folder)
    return Maker(find_builder(env), ImageRecords(folder / "images"), lambda line: click.echo(line, err=True))


def _stop_on_signals() -> None:
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.default_int_handler)


def _print(made: "MadeImage", *, as_json: bool) -> None:
    if as_json:
        click.echo(
            json.dumps({"environment": made.environment, **asdict(made.image), **asdict(made.durations)}, indent=2)
        )
    else:
        click.echo("\n".join(_lines(made)))


def _lines(made: "MadeImage") -> Iterable[str]:
    image = made.image
    shown: dict[str, str | None] = {
        "image": f"{image.name} ({made.environment})",
        "digest": image.digest,
        "architecture": image.architecture,
        "size": None if image.size_bytes is None else _bytes(image.size_bytes),
        "layers": None if image.layers is None else str(image.layers),
        **{name.removesuffix("_seconds"): _seconds(value) for name, value in asdict(made.durations).items()},
    }
    for name, text in shown.items():
        yield f"{name:<13}{'–' if text is None else text}"
    yield f"run in it    gpuagent run mnist --environment {made.environment}:{image.name}"


def _bytes(size: int) -> str:
    divisor, unit = next((pair for pair in _BYTE_UNITS if size >= pair[0]), (1, "B"))
    return f"{size / divisor:.3g} {unit}"


def _seconds(seconds: float | None) -> str | None:
    return None if seconds is None else f"{seconds:.1f} s"
