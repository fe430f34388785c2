"""The project's recipes, and the folder that a builder makes an image from."""

import base64
import hashlib
import importlib.metadata
import importlib.util
import re
import shlex
import shutil
import zipfile
from dataclasses import dataclass
from pathlib import Path

from gpuagent import __version__
from gpuagent_common.errors import GpuAgentError, MisuseError
from gpuagent_common.folders import expand_user

_PACKAGES = (
    "gpuagent",
    "gpuagent_collector",
    "gpuagent_common",
    "gpuagent_proto",
    "gpuagent_report",
    "gpuagent_workloads",
)
_METADATA = ("METADATA", "WHEEL", "entry_points.txt")


def write_wheel(folder: Path) -> Path:
    """Write the wheel into `folder` and return its path. An editable installation gives its source tree.

    Raises GpuAgentError: gpuagent is not installed but runs from a folder.
    """
    try:
        installed = importlib.metadata.distribution("gpuagent")
    except importlib.metadata.PackageNotFoundError as error:
        raise GpuAgentError("gpuagent is not installed in this Python; install it: the image gets a copy") from error
    stem = f"gpuagent-{installed.version}"
    specs = {package: importlib.util.find_spec(package) for package in _PACKAGES}
    contents = {
        f"{package}/{path.relative_to(place)}": path.read_bytes()
        for package, spec in specs.items()
        for place in ((spec.submodule_search_locations or ()) if spec else ())
        for path in sorted(Path(place).rglob("*"))
        if path.is_file() and "__pycache__" not in path.parts
    }
    contents |= {f"{stem}.dist-info/{name}": (installed.read_text(name) or "").encode() for name in _METADATA}
    lines = []
    for name, content in contents.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
        lines.append(f"{name},sha256={digest},{len(content)}")
    contents[f"{stem}.dist-info/RECORD"] = "\n".join([*lines, f"{stem}.dist-info/RECORD,,", ""]).encode()
    path = folder / f"{stem}-py3-none-any.whl"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in contents.items():
            archive.writestr(name, content)
    return path


_INSTALLED = Path(__file__).parent / "recipes"
_REPOSITORY = Path(__file__).parents[3]
_BASE = re.compile(r"^(FROM|From:)[ \t]+(\S+)", re.MULTILINE)
_BOOTSTRAP = re.compile(r"^(Bootstrap:)[ \t]+(\S+)", re.MULTILINE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ingredients:
    """The parts of an image.

    Attributes:
        base: the image to begin with; None: the recipe's own.
        wheels: a folder of wheels to install from, without a package index; None: pip's usual index.
        torch: the required torch, such as `torch==2.4.1`; None: that of constraints.txt.
        index: a second package index, such as for torch without CUDA; None: no second one.
    """

    recipe: Path
    base: str | None = None
    wheels: Path | None = None
    torch: str | None = None
    index: str | None = None

    def arguments(self) -> dict[str, str]:
        """Return the build arguments of the project's recipes that differ from their defaults."""
        given = {
            "BASE": self.base,
            "TORCH": self.torch,
            "PIP_NO_INDEX": "1" if self.wheels else None,
            "PIP_EXTRA_INDEX_URL": self.index,
        }
        return {name: value for name, value in given.items() if value}


def find_recipe(name: str) -> Path:
    """Return a recipe of the project: a path below deploy/, which wheels include."""
    installed = _INSTALLED / name
    return installed if installed.exists() else _REPOSITORY / "deploy" / name


def write_context(folder: Path, ingredients: Ingredients) -> None:
    """Fill the empty `folder` with `recipe` and `wheels/`: the whole input of a build.

    Raises:
        GpuAgentError: a file cannot be read or written.
        MisuseError: the recipe is not text, or its base cannot be replaced.
    """
    try:
        text = ingredients.recipe.read_text(encoding="utf-8")
        if ingredients.base and not takes(text, "BASE"):
            text = with_base(text, ingredients.base)
        (folder / "recipe").write_text(text, encoding="utf-8")
        wheels = folder / "wheels"
        wheels.mkdir()
        write_wheel(wheels)
        constraints = _INSTALLED / "constraints.txt"
        lines = (constraints if constraints.exists() else _REPOSITORY / "constraints.txt").read_text().splitlines()
        kept = [line for line in lines if not (ingredients.torch and line.startswith("torch=="))]
        (wheels / "constraints.txt").write_text("\n".join([*kept, ""]))
        # Older versions of Apptainer pass no arguments to a definition file; ours reads this one.
        exports = [f"export {name}={shlex.quote(value)}\n" for name, value in ingredients.arguments().items()]
        (wheels / "arguments").write_text("".join(exports))
        for wheel in ingredients.wheels.glob("*.whl") if ingredients.wheels else ():
            if not wheel.name.startswith("gpuagent-"):
                # A link where the file system can: torch is large.
                target = wheels / wheel.name
                try:
                    target.hardlink_to(wheel.resolve())
                except OSError:
                    shutil.copy(wheel, target)
    except UnicodeDecodeError as error:
        raise MisuseError(f"{ingredients.recipe} is no recipe: it is not text") from error
    except OSError as error:
        raise GpuAgentError(f"cannot prepare the build: {error.filename or folder}: {error.strerror}") from error


def build_arguments(folder: Path, ingredients: Ingredients, build: str) -> dict[str, str]:
    """Return the build arguments for the Dockerfile that `write_context` wrote.

    Raises MisuseError: the Dockerfile lacks an argument that was asked for.
    """
    text = (folder / "recipe").read_text(encoding="utf-8")
    given = {name: value for name, value in ingredients.arguments().items() if name != "BASE" or takes(text, name)}
    if unknown := [name for name in given if not takes(text, name)]:
        raise MisuseError(f"the recipe {ingredients.recipe} has no ARG {unknown[0]}; add it, or omit the option")
    known = {"BUILD": build, "VERSION": __version__}
    return {**given, **{name: value for name, value in known.items() if takes(text, name)}}


def takes(recipe: str, argument: str) -> bool:
    """Return whether a Dockerfile declares a build argument."""
    return re.search(rf"^ARG[ \t]+{argument}\b", recipe, re.MULTILINE) is not None


def with_base(recipe: str, base: str) -> str:
    """Return a recipe without arguments, with another image to begin with.

    In a definition file the base may be a file or a directory of this machine, or name the kind of registry, as in
    oras://…; else it is an image of a registry of Docker's kind. Raises MisuseError: it begins with several images, or
    with none; or there is no file `base`.
    """
    if len(_BASE.findall(recipe)) != 1:
        raise MisuseError("this recipe has no one FROM that --base could replace; give it an ARG BASE")
    if _BOOTSTRAP.search(recipe):
        kind, separator, name = base.rpartition("://")
        path = expand_user(base)
        if not separator and (path.exists() or path.is_absolute() or path.suffix == ".sif"):
            if not path.exists():
                raise MisuseError(f"there is no file or directory {base!r} to begin with; name another --base")
            kind, name = "localimage", str(path.resolve())
        recipe = _BOOTSTRAP.sub(lambda found: f"{found[1]} {kind or 'docker'}", recipe)
        base = name
    return _BASE.sub(lambda found: f"{found[1]} {base}", recipe)
