"""The client processes: each sends its share of the requests and keeps the answers.

In an open loop a request is sent at its time, whatever became of those before. In a closed loop each user sends the
next one when the last was answered. Load of each goes on until its last measured request is answered.
"""

import asyncio
import itertools
import multiprocessing
import random
import resource
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from typing import Any

from gpuagent_common.own_module import end_with_parent
from gpuagent_workloads.errors import WorkloadError
from gpuagent_workloads.suite.serve_load import Config
from gpuagent_workloads.suite.serve_load.exchange import Answer, Endpoint, Exchange, parse
from gpuagent_workloads.suite.serve_load.schedule import Part, Planned, schedule

# How often a client looks whether it is late itself.
_TICK_SECONDS = 0.02
# A user whose request failed waits, or a dead server would get thousands a second.
_AFTER_ERROR_SECONDS = 0.1

_WORDS = ("time", "year", "people", "way", "day", "man", "thing", "woman", "life", "child", "world", "school")


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """The server, and the length of its prompts: `characters` a token, after `overhead` tokens of its own.

    `ignores_end` asks for answers of full length, as vLLM and SGLang can give; some servers refuse the question. `salt`
    makes the words of prompts those of one run, so that a later run finds none of them in a server's cache.
    """

    endpoint: Endpoint
    model: str
    characters: float = 1.0
    overhead: float = 0.0
    ignores_end: bool = True
    salt: str = ""

    def body(self, config: Config, planned: Planned) -> dict[str, Any]:
        """Return a request; what is not shared in its prompt no other has, so that no server finds it in a cache."""
        parts = planned.parts or (Part(key=str(planned.number), tokens=planned.input_tokens),)
        # Random words of that length; a longer text of the same key begins with a shorter one.
        texts = []
        for part in parts:
            length = max(1, round((part.tokens - (self.overhead if part is parts[-1] else 0)) * self.characters))
            source = random.Random(f"{self.salt}{config.seed}/{part.key}")  # noqa: S311
            texts.append(" ".join(source.choices(_WORDS, k=length // 4 + 1))[:length])
        if config.api == "completions":
            content: dict[str, Any] = {"prompt": "".join(texts)}
        else:
            said = itertools.groupby(zip(parts, texts, strict=True), lambda pair: pair[0].is_answer)
            content = {
                "messages": [
                    {"role": "assistant" if is_answer else "user", "content": "".join(text for _, text in pairs)}
                    for is_answer, pairs in said
                ]
            }
        return {
            "model": self.model,
            **content,
            "max_tokens": planned.output_tokens,
            "temperature": 0,
            "stream": True,
            "stream_options": {"include_usage": True},
            **({"ignore_eos": True} if self.ignores_end else {}),
        }

    def path(self, config: Config) -> str:
        """Return the path of its requests."""
        return "/v1/completions" if config.api == "completions" else "/v1/chat/completions"


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """The monotonic times of the load's begin, and of begin and end of the measurement, in seconds."""

    load_from: float
    measure_from: float
    measure_to: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """A request and its answer; times are monotonic seconds.

    Attributes:
        intended: when it was to be sent.
        sent: when the client began to send it.
        ended: when it was answered, failed or was given up.
        is_measured: whether it was intended within the measurement.
        asked_input: tokens of the prompt, as planned.
        error: its kind; None: it succeeded.
        answer: as far as it came; None: there is none.
    """

    intended: float
    sent: float
    ended: float
    is_measured: bool
    asked_input: int
    error: str | None
    answer: Answer | None


@dataclass(slots=True, kw_only=True)
class _Sent:
    """A request that was sent, with its answer in the making."""

    planned: Planned
    intended: float
    sent: float
    is_measured: bool
    exchange: Exchange | None = None
    ended: float | None = None
    failure: str | None = None

    @property
    def has_failed(self) -> bool:
        """Return whether nothing came."""
        return bool(self.failure) or not (self.exchange and self.exchange.pieces)

    def record(self) -> Record:
        answer = parse(self.exchange.pieces) if self.exchange else None
        return Record(
            intended=self.intended,
            sent=self.sent,
            ended=self.ended or time.monotonic(),
            is_measured=self.is_measured,
            asked_input=self.planned.input_tokens,
            error=self.failure or _error_in(answer),
            answer=answer,
        )


def _error_in(answer: Answer | None) -> str | None:
    if answer is None:
        return "connection"
    if answer.status != 200:
        return f"http_{answer.status}"
    if answer.error:
        return "server_error"
    if not answer.token_seconds:
        return "no_tokens"
    return None if answer.is_complete else "incomplete"


@dataclass(slots=True, kw_only=True)
class Log:
    """The records of one client, and how late it was, in seconds, whenever it looked."""

    records: list[Record] = field(default_factory=list)
    late_seconds: list[float] = field(default_factory=list)


# Puts the load of a Config on a server.
Drive = Callable[[Config, Callable[[Window], None]], Log]


class Client:
    """The load of one process: its share of the requests, number `share` of `shares`."""

    def __init__(self, config: Config, target: Target, window: Window, share: int, shares: int) -> None:
        self._config, self._target, self._window = config, target, window
        self._planned = itertools.islice(schedule(config), share, None, shares)
        self._users = len(range(share, config.concurrency or 0, shares))
        self._sent: list[_Sent] = []
        # Measured requests that have begun and not ended.
        self._unanswered = 0
        self._late_seconds: list[float] = []
        self._is_ending = False

    async def run(self) -> Log:
        """Send requests until all measured ones have ended."""
        ticker = asyncio.create_task(self._tick())
        await (self._send_for_users() if self._config.concurrency else self._send_at_times())
        ticker.cancel()
        return Log(records=[sent.record() for sent in self._sent], late_seconds=self._late_seconds)

    async def _tick(self) -> None:
        due = time.monotonic()
        while True:
            due = max(due, time.monotonic()) + _TICK_SECONDS
            await asyncio.sleep(due - time.monotonic())
            if due >= self._window.measure_from:
                self._late_seconds.append(max(0.0, time.monotonic() - due))

    def _is_over(self) -> bool:
        """Return whether all measured requests have ended."""
        return time.monotonic() >= self._window.measure_to and not self._unanswered

    async def _send_at_times(self) -> None:
        tasks = []
        for planned in self._planned:
            intended = self._window.load_from + planned.at_seconds
            is_measured = intended < self._window.measure_to
            await asyncio.sleep(max(0.0, intended - time.monotonic()) if is_measured else 0.0)
            # Load goes on, but ends with the last measured request.
            while not is_measured and not self._is_over() and (left := intended - time.monotonic()) > 0:
                await asyncio.sleep(min(left, _TICK_SECONDS))
            if not is_measured and self._is_over():
                break
            tasks.append(asyncio.create_task(self._converse(self._begin(planned, intended))))
        await self._end(tasks)

    async def _send_for_users(self) -> None:
        await asyncio.sleep(max(0.0, self._window.load_from - time.monotonic()))
        users = [asyncio.create_task(self._use()) for _ in range(self._users)]
        while not self._is_over():
            await asyncio.sleep(_TICK_SECONDS)
        await self._end(users)

    async def _end(self, tasks: Sequence["asyncio.Task[Any]"]) -> None:
        # Before Python 3.12 a wait with a timeout that ends just now loses a cancellation.
        self._is_ending = True
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _use(self) -> None:
        while not self._is_ending:
            sent = await self._converse(self._begin(next(self._planned), time.monotonic()))
            if sent.has_failed:
                await asyncio.sleep(_AFTER_ERROR_SECONDS)

    async def _converse(self, sent: _Sent) -> _Sent:
        """Send a request and the further turns of its conversation; return the last one."""
        await self._exchange(sent)
        for planned in sent.planned.turns:
            if sent.has_failed or self._is_ending:
                break
            intended = time.monotonic() + planned.at_seconds
            await asyncio.sleep(planned.at_seconds)
            sent = self._begin(planned, intended)
            await self._exchange(sent)
        return sent

    def _begin(self, planned: Planned, intended: float) -> _Sent:
        is_measured = self._window.measure_from <= intended < self._window.measure_to
        sent = _Sent(planned=planned, intended=intended, sent=time.monotonic(), is_measured=is_measured)
        self._sent.append(sent)
        self._unanswered += is_measured
        return sent

    async def _exchange(self, sent: _Sent) -> None:
        target, config = self._target, self._config
        sent.exchange = Exchange(target.endpoint.request(target.path(config), target.body(config, sent.planned)))
        sent.sent = time.monotonic()
        try:
            await asyncio.wait_for(sent.exchange.run(target.endpoint), config.timeout)
        except asyncio.TimeoutError:
            sent.failure = "timeout"
        except ConnectionError:
            sent.failure = "connection"
        except OSError as error:
            sent.failure = f"client_{error.errno}"
        finally:
            sent.ended = time.monotonic()
            self._unanswered -= sent.is_measured


@contextmanager
def driving(target: Target, clients: int, start_seconds: float = 0.5) -> Iterator[Drive]:
    """Yield a function that puts a load on the server by that many processes, and returns what they measured together.

    Its second argument is called when all processes are ready, with the times of the load; it may wait. `start_seconds`
    is the pause between that and the load. Raises WorkloadError: a process ended by itself.
    """
    with _processes(target, clients) as pipes:
        for pipe in pipes:
            _receive(pipe)

        def drive(config: Config, on_begin: Callable[[Window], None]) -> Log:
            load_from = time.monotonic() + start_seconds
            measure_from = load_from + config.warmup
            window = Window(load_from=load_from, measure_from=measure_from, measure_to=measure_from + config.duration)
            for pipe in pipes:
                pipe.send((config, window))
            on_begin(window)
            logs: list[Log] = [_receive(pipe) for pipe in pipes]
            return Log(
                records=sorted((record for log in logs for record in log.records), key=lambda record: record.intended),
                late_seconds=[late for log in logs for late in log.late_seconds],
            )

        yield drive


def _receive(pipe: Connection) -> Any:
    try:
        return pipe.recv()
    except EOFError as error:
        raise WorkloadError("a client process ended by itself: perhaps memory ran out; see its output above") from error


@contextmanager
def _processes(target: Target, clients: int) -> Iterator[list[Connection]]:
    """Yield a pipe to each running client, and end them on exit."""
    context = multiprocessing.get_context("spawn")
    processes, pipes = [], []
    try:
        for share in range(clients):
            ours, theirs = context.Pipe()
            process = context.Process(target=_work, args=(theirs, target, share, clients), daemon=True)
            process.start()
            theirs.close()
            processes.append(process)
            pipes.append(ours)
        yield pipes
    finally:
        for pipe in pipes:
            pipe.close()
        for process in processes:
            process.terminate()
            process.join()


def _work(pipe: Connection, target: Target, share: int, shares: int) -> None:
    """Be one client: say that it is ready, then receive loads with their times, and return the log of each."""
    end_with_parent()  # Ctrl-C is for the run, which then ends this process
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _, most_files = resource.getrlimit(resource.RLIMIT_NOFILE)
    with suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (most_files, most_files))
    pipe.send(None)
    with suppress(EOFError, BrokenPipeError):
        while True:
            config, window = pipe.recv()
            pipe.send(asyncio.run(Client(config, target, window, share, shares).run()))
