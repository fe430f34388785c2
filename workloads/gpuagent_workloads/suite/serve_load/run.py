"""The run of serve-load: the server's start, a few requests to know it, a search, the load, and the figures."""

import os
import secrets
import shlex
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from hashlib import sha256
from pathlib import Path

import click

from gpuagent_common.errors import MisuseError
from gpuagent_common.own_module import SAFE_PATH, end_with_parent, module_command
from gpuagent_workloads.errors import WorkloadError
from gpuagent_workloads.report import Reporter
from gpuagent_workloads.suite.serve_load import Config
from gpuagent_workloads.suite.serve_load.clients import Drive, Log, Target, Window, driving
from gpuagent_workloads.suite.serve_load.exchange import Answer, Endpoint, ask
from gpuagent_workloads.suite.serve_load.figures import reading_server, report_figures, report_readings, write_records
from gpuagent_workloads.suite.serve_load.find import find_load
from gpuagent_workloads.suite.serve_load.schedule import Planned, schedule

_POLL_SECONDS = 0.05
_GRACE_SECONDS = 8.0


@contextmanager
def served(config: Config, reporter: Reporter) -> Iterator[str]:
    """Yield the address of the server, started here if the run has one, which then ends on exit.

    Reports how long it took to listen, and to be ready.

    Raises:
        MisuseError: its program does not exist.
        WorkloadError: it ended, or was not ready in time.
    """
    if config.serve is None:
        yield str(config.url)
        return
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port: int = found.getsockname()[1]
    words = [word.replace("{port}", str(port)) for word in shlex.split(config.serve)]
    if words[:3] == ["{python}", "-m", "gpuagent_workloads"]:
        words = [*module_command(sys.executable, "gpuagent_workloads"), *words[3:]]
    else:
        words = [word.replace("{python}", sys.executable) for word in words]
    folder = reporter.directory or Path(tempfile.mkdtemp(prefix="serve-load-"))
    output = folder / "server.log"
    with output.open("ab") as file:
        try:
            process = subprocess.Popen(
                words,
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=file,
                env={name: value for name, value in os.environ.items() if (name, value) != SAFE_PATH},
                start_new_session=True,
                preexec_fn=end_with_parent,  # noqa: PLW1509 - there are no threads here
            )
        except OSError as error:
            raise MisuseError(f"cannot start the server {words[0]!r}: {error.strerror}") from error
    try:
        url = f"http://127.0.0.1:{port}"
        _await_ready(process, url, port, config, reporter, output)
        try:
            yield url
        except WorkloadError as error:
            if process.poll() is None:
                raise
            raise WorkloadError(f"the server ended while it was measured: {_last_line(output)}") from error
        if process.poll() is not None:
            raise WorkloadError(f"the server ended while it was measured: {_last_line(output)}")
    finally:
        _end(process)


def _await_ready(
    process: "subprocess.Popen[bytes]", url: str, port: int, config: Config, reporter: Reporter, output: Path
) -> None:
    started = time.monotonic()
    listens = False
    while True:
        if process.poll() is not None:
            raise WorkloadError(f"the server ended with code {process.returncode}: {_last_line(output)}")
        if time.monotonic() > started + config.ready_timeout:
            raise WorkloadError(f"{config.ready} did not answer 200 within {config.ready_timeout:g} s; see {output}")
        if not listens and _accepts(port):
            listens = True
            reporter.result("server_listen_seconds", time.monotonic() - started, unit="s")
        if listens:
            with suppress(WorkloadError):
                if ask(Endpoint(url=url), config.ready, timeout_seconds=5).status == 200:
                    break
        time.sleep(_POLL_SECONDS)
    reporter.result("server_ready_seconds", time.monotonic() - started, unit="s")


def _accepts(port: int) -> bool:
    with suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
        return True
    return False


def _last_line(output: Path) -> str:
    lines = [line.strip() for line in output.read_text(errors="replace").splitlines() if line.strip()]
    return f"{lines[-1]:.200}; its output: {output}" if lines else "it printed nothing"


def _end(process: "subprocess.Popen[bytes]") -> None:
    """End the server and everything in its session."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        with suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        with suppress(subprocess.TimeoutExpired):
            process.wait(_GRACE_SECONDS)


# Tokens are about so long where the server does not count those of prompts.
_CHARACTERS = 4.0
_CORES_PER_CLIENT = 4
# A prompt whose answer is compared, and that answer.
_ANSWERED_CHARACTERS = 256
_ANSWER_TOKENS = 32
_MOST_CLIENTS = 16


def run(config: Config, reporter: Reporter) -> None:
    """Measure the server.

    Raises:
        MisuseError: the server or the load is missing, or a distribution of lengths or the command is invalid.
        DataError: a trace is missing or of another form.
        WorkloadError: the server does not start, or does not answer.
    """
    _check_complete(config)
    for uuid in filter(None, map(str.strip, (config.gpus or "").split(","))):
        reporter.device(uuid)
    clients = config.clients or max(1, min(_MOST_CLIENTS, len(os.sched_getaffinity(0)) // _CORES_PER_CLIENT))
    reporter.result("clients", clients)
    reporter.result("seed", config.seed)
    with served(config, reporter) as url:
        target = _meet(config, Endpoint(url=url, key=os.environ.get("OPENAI_API_KEY")), reporter)
        if config.answers:
            reporter.result("answers", _fixed_answers(config, target))
        windows: list[Window] = []

        def follow(window: Window) -> None:
            """Report the phases as they begin."""
            windows.append(window)
            for phase, begins in (
                ("warmup", window.load_from),
                ("measure", window.measure_from),
                ("teardown", window.measure_to),
            ):
                time.sleep(max(0.0, begins - time.monotonic()))
                if phase != "warmup" or config.warmup:
                    reporter.phase(phase)

        with driving(target, clients) as drive:
            was_limited = False
            if config.find:
                config, was_limited = find_load(config, partial(_measure_once, drive, target), reporter)
            with reading_server(target.endpoint) as readings:
                log = drive(config, follow)
    (window,) = windows
    report_readings(readings, window, reporter)
    if reporter.directory:
        write_records(log.records, window, reporter.directory / "requests.jsonl")
    if report_figures(log, window, config, reporter, was_limited=was_limited):
        click.echo(
            "serve-load: warning: the clients were late or failed themselves, so that latencies and limits are partly "
            "theirs; give more --clients, or more cores",
            err=True,
        )
    if config.duration < 10:
        reporter.result("measure_short", 1)


def _fixed_answers(config: Config, target: Target) -> str:
    """Return a digest of each answer to prompts that are the same for all servers, one after another.

    Raises WorkloadError: the server refuses one.
    """
    # Whatever the run's seed and words, and whatever a token is.
    same = replace(target, salt="", characters=1.0, overhead=0.0)
    asked = replace(config, seed=0)
    digests = []
    for number in range(config.answers):
        planned = Planned(
            at_seconds=0.0, input_tokens=_ANSWERED_CHARACTERS, output_tokens=_ANSWER_TOKENS, number=number
        )
        answer = _try(same, asked, planned)
        _check(answer, target.endpoint, config)
        digests.append(sha256(answer.text.encode()).hexdigest()[:8])
    return " ".join(digests)


def _check_complete(config: Config) -> None:
    """Raise an error for what is missing or wrong, before a model is loaded."""
    if not (config.url or config.serve):
        raise MisuseError("give --url of a running server, or --serve COMMAND to start one")
    if not (config.loads or config.find):
        # The agent's own --rate is that of samples.
        raise MisuseError("give a load, such as --param rate=4: rate, concurrency or trace, or find=rate")
    next(schedule(config))


def _meet(config: Config, endpoint: Endpoint, reporter: Reporter) -> Target:
    """Return the target: its model, and by two short prompts how many characters make a token."""
    model = config.model
    if model is None:
        found = ask(endpoint, "/v1/models", timeout_seconds=config.timeout)
        model = found.model
        if not model:
            raise WorkloadError(f"{endpoint.url}/v1/models lists no model (status {found.status}); give --model")
    reporter.result("model", model)
    target = Target(endpoint=endpoint, model=model, salt=f"{secrets.token_hex(4)}/")
    lengths = (64, 320)
    counts = []
    for number, length in enumerate(lengths):
        planned = Planned(at_seconds=0.0, input_tokens=length, output_tokens=2, number=-1 - number)
        began = time.monotonic()
        answer = _try(target, config, planned)
        if 400 <= answer.status < 500 and target.ignores_end:
            target = replace(target, ignores_end=False)
            answer = _try(target, config, planned)
        _check(answer, endpoint, config)
        if not number:
            reporter.result("first_answer_seconds", time.monotonic() - began, unit="s")
        counts.append(answer.usage.get("prompt_tokens"))
    short, long = counts
    if short is None or long is None or long <= short:
        reporter.result("prompt_length", f"taken as {_CHARACTERS:g} characters a token: the server does not count them")
        return replace(target, characters=_CHARACTERS)
    characters = (lengths[1] - lengths[0]) / (long - short)
    return replace(target, characters=characters, overhead=short - lengths[0] / characters)


def _measure_once(drive: Drive, target: Target, load: Config) -> Log:
    """Put a window of load on the server, once it is through with the one before."""
    _try(target, load, Planned(at_seconds=0.0, input_tokens=64, output_tokens=1, number=-1))
    return drive(load, lambda _window: None)


def _try(target: Target, config: Config, planned: Planned) -> Answer:
    body = target.body(config, planned)
    # The first request may load the model.
    return ask(target.endpoint, target.path(config), body, timeout_seconds=config.ready_timeout)


def _check(answer: Answer, endpoint: Endpoint, config: Config) -> None:
    """Raise WorkloadError where the server refuses requests."""
    if answer.status != 200 or answer.error:
        why = answer.error or f"status {answer.status}"
        raise WorkloadError(f"{endpoint.url} refuses {config.api}: {why:.300}")
    if not answer.token_seconds:
        counted = answer.usage.get("completion_tokens")
        why = f"its {counted} tokens have none: check that its tokenizer fits" if counted else "try the other --api"
        raise WorkloadError(f"{endpoint.url} answers {config.api} without any text; {why}")
