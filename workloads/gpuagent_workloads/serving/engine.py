"""Continuous batching: requests join and leave a batch between two steps, each with its part of one cache.

Sequences are those at the front of the cache, so that a step reads it in place: the last one moves where another ended.
"""

import queue
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch

from gpuagent_workloads.llama.model import Cache, Llama
from gpuagent_workloads.llama.presets import Size

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
        self._device, self._slots, self._prefill = device, slots, prefill
        self._waiting: queue.SimpleQueue[Request | None] = queue.SimpleQueue()
        self._next: deque[Request] = deque()
        self._running: list[_Sequence] = []

    def submit(self, request: Request) -> None:
        """Queue a request; from any thread."""
        self._waiting.put(request)

    def close(self) -> None:
        """Let `run` return; unfinished requests end without further tokens."""
        self._waiting.put(None)

    @torch.inference_mode()
    def run(self) -> None:
        """Serve requests until `close`."""
        is_open = True
        while is_open:
            is_open = self._receive()
            self._drop_cancelled()
            self._admit()
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

    def _drop_cancelled(self) -> None:
        self._next = deque(request for request in self._next if not request.cancelled)
        for index in range(len(self._running) - 1, -1, -1):
            if self._running[index].request.cancelled:
                self._leave(index)

    def _admit(self) -> None:
        """Read prompts into free places, and make the first token of each."""
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
