"""`gpuagent image`: build or pull the image of the workloads, and measure the time."""

import json
import os
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from gpuagent.cli.options import SPOOL_OPTION
from gpuagent_common.cli import SuggestingGroup, interrupt_on_signals

if TYPE_CHECKING:
    from gpuagent.images.make import MadeImage, Maker

_BYTE_UNITS = ((10**9, "GB"), (10**6, "MB"), (10**3, "kB"))

_JSON_OPTION = click.option("--json", "as_json", is_flag=True, help="Print the image as JSON.")


@click.group(cls=SuggestingGroup)
def command() -> None:
    """Build or pull the image of the workloads.

    The seconds are stored on the node, and recorded with every later run in the image: in the table `images` and in
    `collector compare`.
    """


@command.command(
    epilog="""\b
Examples:
  gpuagent image build docker
  gpuagent image build podman --push registry.example/me/gpuagent-workloads
  gpuagent image build apptainer --tag ~/images/workloads.sif
  gpuagent image build apptainer --base base.sif --wheels /shared/wheels
  gpuagent image build docker --torch torch==2.4.1 \\
      --base python:3.11-slim-bookworm
  gpuagent image build charliecloud --wheels /shared/wheels"""
)
@click.argument("env")
@click.option("--tag", metavar="NAME", help="Name of the image; a path for apptainer, singularity, charliecloud.")
@click.option(
    "--recipe",
    type=click.Path(path_type=Path, dir_okay=False),
    show_default="the project's",
    help="Dockerfile or definition file, with gpuagent in wheels/.",
)
@click.option(
    "--base", metavar="IMAGE", help="Image to begin with, with pip and venv; for apptainer also DIR|FILE.sif."
)
@click.option("--torch", metavar="REQUIREMENT", help="Version of torch for the GPU, such as torch==2.4.1.")
@click.option("--index", metavar="URL", help="Second package index, such as for torch without CUDA.")
@click.option(
    "--wheels",
    type=click.Path(path_type=Path, file_okay=False, exists=True),
    help="Install from this folder of `pip download` alone, without a network.",
)
@click.option("--push", "push_to", metavar="REF", help="Push the image to this place in a registry.")
@SPOOL_OPTION
@_JSON_OPTION
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
    """Build the image of the workloads for ENV.

    ENV is docker, podman, apptainer, singularity or charliecloud. The image gets the gpuagent that is installed here.
    Nothing comes from a cache of earlier builds, so that the seconds are those of a whole build. The tools' output goes
    to stderr.
    """
    from gpuagent.images.builders import find_builder
    from gpuagent.images.recipe import Ingredients, find_recipe

    builder = find_builder(env)
    ingredients = Ingredients(
        recipe=recipe or find_recipe(builder.recipe), base=base, torch=torch, index=index, wheels=wheels
    )
    interrupt_on_signals()
    _print(_maker(env, spool).build(tag or builder.tag, ingredients, push_to), as_json=as_json)


@command.command(
    epilog="""\b
Examples:
  gpuagent image pull docker registry.example/me/gpuagent-workloads:1
  gpuagent image pull apptainer oras://registry.example/me/workloads:1 \\
      --tag workloads.sif"""
)
@click.argument("env")
@click.argument("reference")
@click.option("--tag", metavar="PATH", help="Path of the image for apptainer, singularity, charliecloud.")
@SPOOL_OPTION
@_JSON_OPTION
def pull(*, env: str, reference: str, tag: str | None, spool: Path | None, as_json: bool) -> None:
    """Pull the image REFERENCE for ENV, and measure the time."""
    interrupt_on_signals()
    _print(_maker(env, spool).pull(reference, tag), as_json=as_json)


def _maker(env: str, spool: Path | None) -> "Maker":
    from gpuagent import locations
    from gpuagent.images.builders import find_builder
    from gpuagent.images.make import Maker
    from gpuagent.images.records import ImageRecords

    mounts = Path("/proc/self/mounts").read_text()
    folder = locations.spool_directory(spool, environment=os.environ, mounts=mounts)
    locations.make_private(folder)
    return Maker(find_builder(env), ImageRecords(folder / "images"), lambda line: click.echo(line, err=True))


def _print(made: "MadeImage", *, as_json: bool) -> None:
    image, durations = made.image, asdict(made.durations)
    if as_json:
        click.echo(json.dumps({"environment": made.environment, **asdict(image), **durations}, indent=2))
        return
    seconds = {name.removesuffix("_seconds"): value for name, value in durations.items()}
    size = None
    if image.size_bytes is not None:
        divisor, unit = next((pair for pair in _BYTE_UNITS if image.size_bytes >= pair[0]), (1, "B"))
        size = f"{image.size_bytes / divisor:.3g} {unit}"
    shown: dict[str, str | None] = {
        "image": f"{image.name} ({made.environment})",
        "digest": image.digest,
        "architecture": image.architecture,
        "size": size,
        "layers": None if image.layers is None else str(image.layers),
        **{name: None if value is None else f"{value:.1f} s" for name, value in seconds.items()},
        "run in it": f"gpuagent run mnist --environment {made.environment}:{image.name}",
    }
    for name, text in shown.items():
        click.echo(f"{name:<13}{'–' if text is None else text}")
