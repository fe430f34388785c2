"""`make demo`: the whole path on one machine, printing every command.

A collector and an agent are started; MNIST is trained quiet and beside a CPU-heavy load in turns; the comparison shows
what the load cost. Everything lies in one new folder below demo-data/. Ctrl-C at any point leaves no process behind.
"""

import contextlib
import os
import shlex
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

# A side: with 4 against 4 the smallest p is 0.029, so that a difference can be significant.
REPEATS = 4

ROOT = Path(__file__).resolve().parent.parent
BIN = Path(sys.executable).parent


def main() -> int:
    """Run the demo; return its exit code."""
    folder = ROOT / "demo-data" / time.strftime("%Y%m%d-%H%M%S")
    folder.mkdir(parents=True)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with tempfile.TemporaryDirectory(prefix="gpuagent-demo-") as runtime, contextlib.ExitStack() as running:
        environment = {
            **os.environ,
            "PATH": f"{BIN}:{os.environ.get('PATH', '')}",
            "GPUAGENT_TOKEN_FILE": str(folder / "token"),
            "GPUAGENT_SPOOL_DIR": str(folder / "spool"),
            # A runtime folder of its own, so that an agent of this machine is not affected.
            "GPUAGENT_RUNTIME_DIR": runtime,
        }
        serve = ["collector", "serve", "--listen", "127.0.0.1:0", "--store", str(folder / "runs.duckdb")]
        address = running.enter_context(_in_background(serve, environment, folder / "collector.log"))
        environment["GPUAGENT_COLLECTOR"] = address
        start = ["gpuagent", "start", "--platform", "demo"]
        running.enter_context(_in_background(start, environment, folder / "agent.log"))
        _train(environment)
        print("\nWhat did the load cost?")
        _run(["collector", "compare", "--by", "interference", "--workload", "mnist"], environment)
    _say_next(folder)
    return 0


def _train(environment: dict[str, str]) -> None:
    """Run MNIST quiet and loaded in turns, so that drift affects both sides alike."""
    print(f"\nMNIST, {REPEATS} times quiet and {REPEATS} times beside a load on every CPU, in turns:")
    started = time.monotonic()
    for ended in range(2 * REPEATS):
        repeat, is_second = divmod(ended, 2)
        side = ["--with", "cpu-burn"] if bool(is_second) is (repeat % 2 == 0) else []
        seconds = (time.monotonic() - started) / ended * (2 * REPEATS - ended) if ended else None
        left = "" if seconds is None else f", about {seconds:.0f} s left"
        print(f"\nrun {ended + 1} of {2 * REPEATS}{left}")
        run = ["gpuagent", "run", "mnist", "--experiment", "demo", "--first-repeat", str(repeat + 1), *side]
        _run(run, environment, quiet=True)


def _run(command: list[str], environment: dict[str, str], *, quiet: bool = False) -> None:
    print(f"$ {shlex.join(command)}", flush=True)
    subprocess.run(command, env=environment, check=True, stdout=subprocess.DEVNULL if quiet else None)


@contextlib.contextmanager
def _in_background(command: list[str], environment: dict[str, str], log: Path) -> Iterator[str]:
    """Run a server within the block; yield the address that it prints, if any."""
    print(f"$ {shlex.join(command)} &", flush=True)
    # In a session of its own: on Ctrl-C the demo stops the servers in the right order.
    with log.open("wb") as output:
        process = subprocess.Popen(
            command, env=environment, stdout=output, stderr=subprocess.STDOUT, start_new_session=True
        )
    try:
        yield _first_line(process, log)
    finally:
        process.terminate()
        process.wait()


def _first_line(process: "subprocess.Popen[bytes]", log: Path) -> str:
    """Wait for the server's first line; return the HOST:PORT in it."""
    while not (text := log.read_text()).count("\n"):
        if process.poll() is not None:
            raise SystemExit(f"{shlex.join(map(str, process.args))} ended:\n{text}")  # type: ignore[arg-type]
        time.sleep(0.05)
    return next((word.rstrip(",;.") for word in text.split() if word.startswith("127.0.0.1:")), "")


def _say_next(folder: Path) -> None:
    store = folder.relative_to(ROOT) / "runs.duckdb"
    print(f"""
Everything is in {folder.relative_to(ROOT)}/. To look further (with .venv/bin on your PATH):

  collector runs --store {store}
  collector query sql --store {store} "SELECT run_id, avg(cpu_percent) FROM host_samples, runs
      WHERE time BETWEEN started_at AND ended_at GROUP BY ALL"
  collector schema gpu_samples

To measure your own program, start `collector serve` in one terminal, then in another:

  gpuagent run --platform here -- python train.py""")


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
    except subprocess.CalledProcessError as error:
        sys.exit(error.returncode)
