"""Puts load on a server of a language model that has OpenAI's API, such as vLLM, SGLang, llama.cpp or our own.

With --serve the server is part of the run: it starts, is waited for, and ends with it.
"""

import re
from dataclasses import dataclass

from gpuagent_common.errors import MisuseError
from gpuagent_workloads.workload import Checked, Workload, parameter

# The highest load among which is searched: requests a second, users, or times the speed of a trace.
MOST_FOUND = 100_000

# Of a search: percent between two levels, and the most windows.
_STEP_PERCENT, _WINDOWS = 5.0, 60


@dataclass(frozen=True, slots=True, kw_only=True)
class Config(Checked):
    """The server, the load, and the limits of latency that count as good."""

    url: str | None = parameter(None, help="address of a running server, such as http://host:8000")
    serve: str | None = parameter(None, help="command of a server to start; {port} and {python} are filled in")
    ready: str = parameter("/health", help="with --serve: path that answers 200 once the server is ready")
    ready_timeout: float = parameter(900.0, help="with --serve: most seconds until it is ready", minimum=1)
    server: str | None = parameter(None, help="name of the server's setting, to compare by parameter:server")
    model: str | None = parameter(None, help="name of the model; by default the server's first")
    api: str = parameter("completions", help="kind of request", choices=("completions", "chat"))
    rate: float | None = parameter(None, help="requests a second, sent at their times (open loop)", minimum=1e-3)
    burstiness: float = parameter(
        1.0, help="shape of the gamma distribution of pauses; 1: Poisson, below: in bursts", minimum=0.01, maximum=1e6
    )
    concurrency: int | None = parameter(None, help="users who each wait for their answer (closed loop)", minimum=1)
    trace: str | None = parameter(None, help="file with the times and lengths of recorded requests", path=True)
    scale: float = parameter(1.0, help="with --trace: how many times as fast it is sent", minimum=1e-6, maximum=1e6)
    find: str | None = parameter(
        None, help="search for the highest load within the limits", choices=("rate", "concurrency", "scale")
    )
    find_step: float = parameter(
        _STEP_PERCENT, help="with --find: percent between two levels", minimum=0.1, maximum=100
    )
    find_windows: int = parameter(_WINDOWS, help="with --find: most windows, each of --duration", minimum=10)
    input: str = parameter("256", help="tokens of a prompt: N, uniform:A:B, or lognormal:MEDIAN:SIGMA")
    output: str = parameter("64", help="tokens of an answer, in the same forms")
    shared_prefix: float = parameter(0.0, help="share of a prompt with which all begin", minimum=0, maximum=0.99)
    turns: int = parameter(1, help="requests of a conversation, each with all before it", minimum=1, maximum=1000)
    think: float = parameter(1.0, help="mean seconds between an answer and the next turn", minimum=0, maximum=1e6)
    block: int = parameter(512, help="tokens of a block of a trace's hash_ids", minimum=1)
    lengths: str | None = parameter(None, help="file with pairs of lengths to draw from, as --trace has", path=True)
    duration: float = parameter(30.0, help="seconds in which requests are measured", minimum=0.1, maximum=1e6)
    warmup: float = parameter(5.0, help="seconds of the same load before", minimum=0, maximum=1e6)
    timeout: float = parameter(120.0, help="seconds after which a request has failed", minimum=0.1)
    slo_ttft: float | None = parameter(None, help="most milliseconds to the first token of a good request", minimum=0)
    slo_tpot: float | None = parameter(None, help="most milliseconds for each further token of one", minimum=0)
    slo_e2e: float | None = parameter(None, help="most milliseconds to the end of one", minimum=0)
    slo_percent: float = parameter(
        90.0, help="with --find: percent of requests that keep each limit", minimum=1, maximum=100
    )
    clients: int | None = parameter(None, help="processes that send; by default one for four cores", minimum=1)
    answers: int = parameter(
        0, help="fixed prompts before the load, to compare what servers say", minimum=0, maximum=256
    )
    gpus: str | None = parameter(None, help="UUIDs of this node's GPUs that a server at --url uses, with commas")
    seed: int = parameter(1, help="seed of times, lengths and prompts", minimum=0, maximum=2**32 - 1)

    def check_together(self) -> None:
        """Check that parameters do not contradict one another."""
        if self.url and self.serve:
            raise MisuseError("give either --url of a running server or --serve COMMAND, not both")
        if len(self.loads) > 1:
            raise MisuseError(f"give one of --rate, --concurrency and --trace, not {' and '.join(self.loads)}")
        self._check_search()
        if self.trace and (self.turns > 1 or self.shared_prefix):
            raise MisuseError("--turns and --shared-prefix are for drawn requests; a --trace has its own")
        if self.serve and "{port}" not in self.serve:
            raise MisuseError("--serve needs {port}, where the server gets its free port")
        if self.url and not re.match(r"https?://(\[.+]|[^/:]+)(:\d+)?(/|$)", self.url):
            raise MisuseError(f"--url begins with http:// or https://, and its port is a number, not {self.url!r}")

    def _check_search(self) -> None:
        if not self.find and (self.find_windows != _WINDOWS or self.find_step != _STEP_PERCENT):
            raise MisuseError("--find-windows and --find-step need --find, such as --find rate")
        if self.find and self.slo_ttft is None and self.slo_tpot is None and self.slo_e2e is None:
            raise MisuseError("--find needs a limit, such as --slo-ttft 200")
        load = "trace" if self.find == "scale" else self.find
        if self.find and self.loads != [load] and (self.loads or load == "trace"):
            raise MisuseError(f"--find {self.find} needs --{load} alone, not {' and '.join(self.loads) or 'nothing'}")
        if self.find == "rate" and self.turns > 1:
            raise MisuseError("--turns needs --find concurrency: a window is too short for a rate of conversations")
        if self.find and max(self.rate or 0, self.concurrency or 0) > MOST_FOUND:
            raise MisuseError(f"--find begins at a --rate or --concurrency of at most {MOST_FOUND:,}")

    @property
    def loads(self) -> list[str]:
        """The kinds of load that are given."""
        return [name for name in ("rate", "concurrency", "trace") if getattr(self, name) is not None]


WORKLOAD = Workload(
    name="serve-load",
    summary="Measures a server of a language model: latency, goodput and tokens per second under load.",
    kind="measurement",
    study="none of the five: today's inference",
    data="random words, or the times and lengths of a recorded trace",
    memory="that of the server; a client keeps every answer, about 300 bytes a token",
    config=Config,
    entry="gpuagent_workloads.suite.serve_load.run:run",
    first_phase="setup",
)
