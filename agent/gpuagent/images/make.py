"""Builds and pulls images, measures the time, and leaves nothing half done."""

import os
import secrets
import shutil
import signal
import subprocess
import tempfile
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from gpuagent.environments import find_environment
from gpuagent.environments.environment import EnvironmentUnavailableError, Image
from gpuagent.environments.support.common import last_line, need_program
from gpuagent.images.builders import Builder, Command, Work
from gpuagent.images.recipe import Ingredients, build_arguments, write_context
from gpuagent.images.records import Durations, ImageRecords
from gpuagent_common.errors import GpuAgentError, MisuseError
from gpuagent_common.folders import expand_user

# An interrupted builder may clean up for this long.
_STOP_SECONDS = 20.0

_KEPT_LINES = 30


@dataclass(frozen=True, slots=True, kw_only=True)
class MadeImage:
    """An image on this node, with the time that its making took."""

    environment: str
    image: Image
    durations: Durations


class Maker:
    """A maker of images for one environment. `report` receives each line of the tools' output."""

    def __init__(self, builder: Builder, records: ImageRecords, report: Callable[[str], None]) -> None:
        self._builder = builder
        self._environment = find_environment(builder.environment)
        self._records = records
        self._report = report

    def build(self, tag: str, ingredients: Ingredients, push_to: str | None = None) -> MadeImage:
        """Build the image `tag`, and push it to the registry if `push_to` names a place there.

        Raises:
            GpuAgentError: the tool is missing or failed; nothing of the image is left, unless the push failed.
            MisuseError: `tag` is taken, or the recipe lacks an argument.
        """
        self._check()
        with tempfile.TemporaryDirectory(prefix="gpuagent-image-") as folder, self._work(tag) as work:
            context = Path(folder)
            write_context(context, ingredients)
            arguments = build_arguments(context, ingredients, work.name) if self._builder.takes_arguments else {}
            with self._complete_on_exit(work) as unfinished:
                seconds = self._run(self._builder.build(replace(unfinished, arguments=arguments)), context)
            made = self._record(work, Durations(build_seconds=seconds))
            if push_to:
                seconds = self._run(self._builder.push(work, push_to), context)
                made = self._record(work, Durations(push_seconds=seconds))
        return made

    def pull(self, reference: str, tag: str | None) -> MadeImage:
        """Pull the image `reference` from its registry, as `tag` where images are files.

        Raises:
            GpuAgentError: the tool is missing or failed.
            MisuseError: the image is here already, so that there is nothing to measure, or a file's `tag` is missing.
        """
        if not tag and self._builder.has_files:
            raise MisuseError(f"an image of {self._environment.name} is a file or a directory: name it by --tag")
        self._check()
        if not self._builder.has_files and self._is_here(reference):
            raise MisuseError(f"{reference} is here already; to measure how long pulling takes, remove it first")
        with self._work(tag or reference) as work, self._complete_on_exit(work) as unfinished:
            seconds = self._run(self._builder.pull(unfinished, reference), Path.cwd())
        return self._record(work, Durations(pull_seconds=seconds))

    def _check(self) -> None:
        name = self._environment.name
        try:
            self._environment.check()
            need_program(self._builder.client()[0], f"install the rest of {name}, or its package for building")
        except EnvironmentUnavailableError as error:
            raise GpuAgentError(f"{name} cannot be used here: {error}; {error.remedy}") from error

    def _is_here(self, reference: str) -> bool:
        try:
            self._environment.find_image(reference)
        except MisuseError:
            return False
        return True

    @contextmanager
    def _work(self, tag: str) -> Iterator[Work]:
        target = str(expand_user(tag).absolute()) if self._builder.has_files else tag
        work = Work(name=f"gpuagent-build-{secrets.token_hex(4)}", target=target)
        try:
            yield work
        finally:
            self._builder.tidy(work)

    @contextmanager
    def _complete_on_exit(self, work: Work) -> Iterator[Work]:
        if not self._builder.has_files:
            yield work
            return
        final = Path(work.target)
        if final.exists():
            raise MisuseError(f"{final} exists already; remove it, or name another place by --tag")
        unfinished = final.with_name(f".{final.name}.{work.name}")
        try:
            yield replace(work, target=str(unfinished))
            unfinished.rename(final)
        except OSError as error:
            raise GpuAgentError(f"cannot make {final}: {error.strerror}") from error
        finally:
            if unfinished.is_dir():
                shutil.rmtree(unfinished, ignore_errors=True)
            else:
                unfinished.unlink(missing_ok=True)

    def _run(self, commands: Sequence[Command], folder: Path) -> float:
        started = time.monotonic()
        for command in commands:
            # In a session of its own: it gets Ctrl-C from us, and we wait for its end.
            try:
                process = subprocess.Popen(
                    command,
                    cwd=folder,
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.STDOUT,
                    text=True,
                    errors="replace",
                    start_new_session=True,
                )
            except OSError as error:
                raise GpuAgentError(f"cannot start {command[0]}: {error.strerror}") from error
            last: deque[str] = deque(maxlen=_KEPT_LINES)
            try:
                for line in process.stdout or ():
                    last.append(line)
                    self._report(line.rstrip())
                code = process.wait()
            except BaseException:
                _stop(process)
                raise
            if code:
                program = next(word for word in command if word != "env" and "=" not in word)
                output = "".join(last)
                if "no space left on device" in output.lower():
                    raise GpuAgentError(
                        f"{program} has no space left for the image; free some, such as of unused images"
                    )
                raise GpuAgentError(
                    f"{program} failed with exit code {code}: {last_line(output) or 'it printed nothing'}"
                )
        return time.monotonic() - started

    def _record(self, work: Work, durations: Durations) -> MadeImage:
        image = self._environment.find_image(work.target)
        if image is None:
            raise GpuAgentError(f"{self._environment.name} does not find the image {work.target}")
        known = self._records.add(self._environment.name, image, durations)
        return MadeImage(environment=self._environment.name, image=image, durations=known)


def _stop(process: "subprocess.Popen[str]") -> None:
    """Interrupt a tool with its descendants, and wait until it has cleaned up."""
    for number in (signal.SIGINT, signal.SIGKILL):
        try:
            os.killpg(process.pid, number)
            process.communicate(timeout=_STOP_SECONDS)
        except (ProcessLookupError, subprocess.TimeoutExpired):
            continue
        return
