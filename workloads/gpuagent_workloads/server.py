"""A small server of the Llama model, with the API of OpenAI: `python -m gpuagent_workloads serve`.

Continuous batching: requests join and leave a batch between two steps, each with its part of one cache. Sequences are
those at the front of the cache, so that a step reads it in place: the last one moves where another ended. The port is
open before the model is loaded; until then `/health` and the completions answer 503.
"""

import asyncio
import contextlib
import json
import queue
import threading
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request as HttpRequest
from starlette.responses import JSONResponse, PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route

from gpuagent_common.errors import MisuseError
from gpuagent_workloads.errors import WorkloadError
from gpuagent_workloads.llama import Size
from gpuagent_workloads.llama.model import Cache, Llama

# Called with each new token of a request, and with None once there are no more.
Emit = Callable[[int | None], None]


@dataclass(slots=True, kw_only=True)
class Request:
    """Tokens to continue.

    Attributes:
        prompt: at least one token.
        most: number of tokens to add, at least 1.
        temperature: 0 takes the likeliest token.
        emit: receives the tokens, in the engine's thread.
        cancelled: set when nobody waits for the tokens any more.
    """

    prompt: Sequence[int]
    most: int
    temperature: float
    emit: Emit
    cancelled: bool = False


@dataclass(slots=True, kw_only=True)
class _Sequence:
    """A request in the batch: `length` tokens are in the cache, and `last` is the next one to go there."""

    request: Request
    length: int
    last: int
    made: int


class Engine:
    """A model that continues several requests at once. `run` needs a thread of its own."""

    def __init__(
        self,
        size: Size,
        *,
        context: int,
        slots: int,
        prefill: int,
        device: torch.device,
        dtype: torch.dtype,
        seed: int,
    ) -> None:
        """Make the model with random weights.

        Args:
            context: most tokens of a request, prompt and answer together.
            slots: most requests at once.
            prefill: once that many tokens of prompts were read, running requests go on first.
        """
        torch.manual_seed(seed)
        before = torch.get_default_dtype()
        torch.set_default_dtype(dtype)
        try:
            with device:
                self._model = Llama(size, context).eval()
        finally:
            torch.set_default_dtype(before)
        self._cache = Cache(size, slots, context, device=device, dtype=dtype)
        self._device, self._slots, self._prefill, self._context = device, slots, prefill, context
        self._waiting: queue.SimpleQueue[Request | None] = queue.SimpleQueue()
        self._next: deque[Request] = deque()
        self._running: list[_Sequence] = []

    def submit(self, request: Request) -> None:
        """Queue a request; from any thread."""
        self._waiting.put(request)

    def figures(self) -> dict[str, float]:
        """Return the requests in the batch, those that wait for it, and the share of the cache in use; any thread."""
        lengths = [sequence.length for sequence in list(self._running)]
        return {
            "requests_running": len(lengths),
            "requests_waiting": len(self._next) + self._waiting.qsize(),
            "kv_cache_usage": sum(lengths) / (self._slots * self._context),
        }

    def close(self) -> None:
        """Let `run` return; unfinished requests end without further tokens."""
        self._waiting.put(None)

    @torch.inference_mode()
    def run(self) -> None:
        """Serve requests until `close`."""
        is_open = True
        while is_open:
            is_open = self._receive()
            self._next = deque(request for request in self._next if not request.cancelled)
            for index in range(len(self._running) - 1, -1, -1):
                if self._running[index].request.cancelled:
                    self._leave(index)
            # Read prompts into free places, and make the first token of each.
            read = 0
            while self._next and len(self._running) < self._slots and read < self._prefill:
                request = self._next.popleft()
                tokens_BL = torch.tensor([request.prompt], device=self._device)
                length = tokens_BL.shape[1]
                positions_BL = torch.arange(length, device=self._device)[None]
                x_BLD = self._model(tokens_BL, positions_BL, self._cache, first=len(self._running), end=length)
                (token,) = self._choose(x_BLD[:, -1:], [request.temperature])
                self._running.append(_Sequence(request=request, length=length, last=token, made=0))
                self._add(len(self._running) - 1, token)
                read += length
            if self._running:
                self._step()
        for request in (*self._next, *(sequence.request for sequence in self._running)):
            request.emit(None)

    def _receive(self) -> bool:
        """Take what was queued, waiting for it if there is nothing to do; return whether the engine stays open."""
        while not self._waiting.empty() or not (self._next or self._running):
            request = self._waiting.get()
            if request is None:
                return False
            self._next.append(request)
        return True

    def _step(self) -> None:
        """Make one further token of each running request."""
        tokens_BL = torch.tensor([[sequence.last] for sequence in self._running], device=self._device)
        lengths = [sequence.length for sequence in self._running]
        positions_BL = torch.tensor(lengths, device=self._device)[:, None]
        x_BLD = self._model(tokens_BL, positions_BL, self._cache, first=0, end=max(lengths) + 1)
        chosen = self._choose(x_BLD, [sequence.request.temperature for sequence in self._running])
        for index in range(len(chosen) - 1, -1, -1):
            self._running[index].length += 1
            self._add(index, chosen[index])

    def _choose(self, x_BLD: torch.Tensor, temperatures: Sequence[float]) -> list[int]:
        """Return a token for each sequence, given the features of its last one, shape (B, 1, D)."""
        scores_BV = self._model.logits(x_BLD)[:, -1].float()
        if any(temperatures):
            # The largest of scores with Gumbel noise is a draw from their softmax.
            noise_BV = -torch.empty_like(scores_BV).exponential_().log_()
            scores_BV += noise_BV * torch.tensor(temperatures, device=self._device)[:, None]
        chosen: list[int] = scores_BV.argmax(dim=-1).tolist()
        return chosen

    def _add(self, index: int, token: int) -> None:
        sequence = self._running[index]
        sequence.last, sequence.made = token, sequence.made + 1
        sequence.request.emit(token)
        if sequence.made >= sequence.request.most:
            sequence.request.emit(None)
            self._leave(index)

    def _leave(self, index: int) -> None:
        """Remove a sequence; the last one takes its place."""
        last = self._running.pop()
        if index < len(self._running):
            self._running[index] = last
            self._cache.move(len(self._running), index)


# OpenAI's default of completions.
_TOKENS = 16

# A byte of text is a token; those without a printable character of their own are shown as one of these.
_FIRST, _PRINTABLE = 32, 95


class Server:
    """The answers of one model."""

    def __init__(self, name: str, *, context: int, vocabulary: int, load: Callable[[], Engine]) -> None:
        """`load` makes the engine, in a thread of its own."""
        self._name = name
        self._context = context
        self._vocabulary = vocabulary
        self._load = load
        self._engine: Engine | None = None
        self._failure: str | None = None
        self._stop: Callable[[], None] = lambda: None
        self.app = Starlette(
            routes=[
                Route("/health", self._health),
                Route("/metrics", self._metrics),
                Route("/v1/models", self._models),
                Route("/v1/completions", self._complete, methods=["POST"]),
                Route("/v1/chat/completions", self._complete, methods=["POST"]),
            ],
            lifespan=self._lifespan,
        )

    @contextlib.asynccontextmanager
    async def _lifespan(self, _app: Starlette) -> AsyncIterator[None]:
        thread = threading.Thread(target=self._serve, daemon=True)
        thread.start()
        yield
        if self._engine:
            self._engine.close()
            await asyncio.to_thread(thread.join)

    def run(self, web: uvicorn.Server) -> None:
        """Serve until a signal ends it. Raises WorkloadError if the port is taken, or the model failed."""
        self._stop = partial(setattr, web, "should_exit", True)
        try:
            web.run()
        except SystemExit as error:
            raise WorkloadError(f"cannot listen on port {web.config.port}; choose another --port") from error
        if self._failure:
            raise WorkloadError(f"the model failed: {self._failure}")

    def _serve(self) -> None:
        try:
            engine = self._load()
            self._engine = engine
            engine.run()
        except Exception as error:  # noqa: BLE001 - the boundary of the thread
            self._failure = f"{type(error).__name__}: {error}"
            self._stop()

    async def _health(self, _request: HttpRequest) -> Response:
        return JSONResponse({"status": "ready"}) if self._engine else _error("the model is loading", 503)

    async def _metrics(self, _request: HttpRequest) -> Response:
        figures = self._engine.figures() if self._engine else {}
        return PlainTextResponse("".join(f"gpuagent:{name} {value}\n" for name, value in figures.items()))

    async def _models(self, _request: HttpRequest) -> Response:
        model = {"id": self._name, "object": "model", "created": 0, "owned_by": "gpuagent"}
        return JSONResponse({"object": "list", "data": [{**model, "max_model_len": self._context}]})

    async def _complete(self, request: HttpRequest) -> Response:
        if self._engine is None:
            return _error("the model is loading", 503)
        is_chat = request.url.path.endswith("/chat/completions")
        try:
            body = await request.json()
            if not isinstance(body, dict):
                raise MisuseError("the body is no JSON object")
            answer = _Answer(body, self._name, self._context, self._vocabulary, is_chat=is_chat)
        except ValueError as error:
            return _error(f"the body is not JSON: {error}", 400)
        except MisuseError as error:
            return _error(str(error), 400)
        self._engine.submit(answer.request)
        if body.get("stream"):
            return StreamingResponse(answer.stream(), media_type="text/event-stream")
        return JSONResponse(await answer.whole())


class _Answer:
    """The tokens of one request on their way to its client."""

    def __init__(self, body: Mapping[str, Any], model: str, context: int, vocabulary: int, *, is_chat: bool) -> None:
        """Raises MisuseError where the request cannot be answered."""
        loop = asyncio.get_running_loop()
        self._tokens: asyncio.Queue[int | None] = asyncio.Queue()
        prompt = _prompt_of(body, is_chat=is_chat)
        most = body.get("max_completion_tokens") or body.get("max_tokens") or _TOKENS
        temperature = body.get("temperature", 1.0)
        if not isinstance(most, int) or most < 1:
            raise MisuseError("max_tokens must be a whole number from 1 up")
        if not isinstance(temperature, int | float) or not 0 <= temperature <= 100:
            raise MisuseError("temperature must be a number from 0 to 100")
        if body.get("n", 1) != 1:
            raise MisuseError("n must be 1")
        if len(prompt) + most > context:
            raise MisuseError(f"{len(prompt)} tokens and {most} more are over the limit of {context}")
        if not all(isinstance(token, int) and 0 <= token < vocabulary for token in prompt):
            raise MisuseError(f"tokens of the prompt must be whole numbers below {vocabulary}")

        def emit(token: int | None) -> None:
            loop.call_soon_threadsafe(self._tokens.put_nowait, token)

        self.request = Request(prompt=prompt, most=most, temperature=float(temperature), emit=emit)
        self._is_chat = is_chat
        self._wants_usage = bool((body.get("stream_options") or {}).get("include_usage"))
        kind = "chat.completion" if is_chat else "text_completion"
        self._frame = {"id": f"gpuagent-{time.time_ns():x}", "created": int(time.time()), "model": model}
        self._kind = kind

    async def stream(self) -> AsyncIterator[str]:
        """Yield an event for each token; the last but one has the usage, if that is wanted."""
        frame = {**self._frame, "object": f"{self._kind}.chunk" if self._is_chat else self._kind}
        made = 0
        try:
            while (token := await self._tokens.get()) is not None:
                made += 1
                end = "length" if made == self.request.most else None
                choice: dict[str, Any] = {"index": 0, "finish_reason": end}
                choice |= {"delta": {"content": decode([token])}} if self._is_chat else {"text": decode([token])}
                yield f"data: {json.dumps({**frame, 'choices': [choice]})}\n\n"
            if self._wants_usage:
                yield f"data: {json.dumps({**frame, 'choices': [], 'usage': self._usage(made)})}\n\n"
            yield "data: [DONE]\n\n"
        finally:
            self.request.cancelled = True

    async def whole(self) -> dict[str, Any]:
        """Return the answer once it is complete."""
        tokens = []
        while (token := await self._tokens.get()) is not None:
            tokens.append(token)
        text = decode(tokens)
        choice: dict[str, Any] = {"index": 0, "finish_reason": "length"}
        choice |= {"message": {"role": "assistant", "content": text}} if self._is_chat else {"text": text}
        return {**self._frame, "object": self._kind, "choices": [choice], "usage": self._usage(len(tokens))}

    def _usage(self, made: int) -> dict[str, int]:
        read = len(self.request.prompt)
        return {"prompt_tokens": read, "completion_tokens": made, "total_tokens": read + made}


def _prompt_of(body: Mapping[str, Any], *, is_chat: bool) -> list[int]:
    if is_chat:
        messages = body.get("messages")
        if not (isinstance(messages, list) and messages and all(isinstance(each, dict) for each in messages)):
            raise MisuseError("messages must be a list of objects with role and content")
        prompt: Any = "\n".join(f"{each.get('role')}: {each.get('content')}" for each in messages)
    else:
        prompt = body.get("prompt")
        if isinstance(prompt, list) and len(prompt) == 1 and isinstance(prompt[0], str):
            (prompt,) = prompt
    tokens = encode(prompt) if isinstance(prompt, str) else prompt
    if not (isinstance(tokens, list) and tokens):
        raise MisuseError("prompt must be a text or a list of tokens, and not empty")
    return tokens


def _error(message: str, status: int) -> JSONResponse:
    return JSONResponse({"error": {"message": message, "type": "invalid_request_error"}}, status_code=status)


def encode(text: str) -> list[int]:
    """Return the bytes of a text, each a token."""
    return list(text.encode())


def decode(tokens: Sequence[int]) -> str:
    """Return a text with one printable character for each token, such as random weights choose."""
    return "".join(chr(_FIRST + (token - _FIRST) % _PRINTABLE) for token in tokens)
