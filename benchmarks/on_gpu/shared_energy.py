"""A run's share of a shared GPU's energy beside what is known of it: two loads on the first GPU, alone and together.

    PATH=…:$PATH python3 -m benchmarks.on_gpu.shared_energy [--rounds 2] [--seconds 20]

Alone, a load takes so many joules an item beyond those of the idle GPU. Together each takes the same for the items that
it does, and the power without work is anybody's: the truth is between that of its items, and that with all of the idle
GPU's. `gpuagent`, `collector` and this Python are those that have gpuagent; PROGRAM_PYTHON, by default the same, has
torch. It takes about four minutes.
"""

import argparse
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.on_gpu.observed import Site

_RUN = """
WITH run AS (SELECT run_id, node_id, started_at, ended_at FROM runs WHERE workload = '{name}' AND ended_at IS NOT NULL)
SELECT epoch(any_value(ended_at) - any_value(started_at)) AS seconds, {figures},
    (SELECT min(power_watts) FROM gpu_samples AS sample JOIN run USING (node_id)
     WHERE sample.time BETWEEN run.started_at AND run.ended_at) AS idle_watts
FROM run JOIN metrics USING (run_id) HAVING count(*) > 0
"""
_NAMES = {
    "joules": "gpu_energy_run_joules",
    "least": "gpu_energy_share_least_joules",
    "share": "gpu_energy_share_joules",
    "most": "gpu_energy_share_most_joules",
}
_FIGURES = ", ".join(f"any_value(value) FILTER (metric = '{name}') AS {key}" for key, name in _NAMES.items())

# What an item is: products of matrices keep the multiprocessors busy, additions the memory.
LOADS = ("products", "additions")


def work(load: str, seconds: float, file: str) -> None:
    """Do items for so long, or until SIGTERM, and write their number."""
    import torch

    is_on = True

    def stop(*_: object) -> None:
        nonlocal is_on
        is_on = False

    signal.signal(signal.SIGTERM, stop)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    if load == "products":
        width = 8192 if device == "cuda" else 256
        given = torch.randn(width, width, device=device, dtype=torch.bfloat16)
        made = torch.empty_like(given)
    else:
        given = torch.randn(2**28 if device == "cuda" else 2**20, device=device)
        made = torch.empty_like(given)
    items = 0
    until = time.monotonic() + seconds
    while is_on and time.monotonic() < until:
        for _ in range(10):
            if load == "products":
                torch.mm(given, given, out=made)
            else:
                torch.add(given, given, out=made)
        if device == "cuda":
            torch.cuda.synchronize()
        items += 10
        Path(file).with_suffix(".ready").touch()
    Path(file).write_text(str(items))


class Loads(Site):
    """The site, and the loads that it measures."""

    def __init__(self, folder: Path, seconds: float) -> None:
        super().__init__(folder, 0)
        self.seconds = seconds

    def program(self, load: str, seconds: float, name: str) -> list[str]:
        """Return the command of a load; its items come into a file of this name."""
        python = os.environ.get("PROGRAM_PYTHON", sys.executable)
        return [
            python,
            "-m",
            "benchmarks.on_gpu.shared_energy",
            "--work",
            load,
            "--seconds",
            str(seconds),
            "--file",
            f"{self.folder}/{name}",
        ]

    def measure(self, name: str, load: str, beside: str | None = None) -> dict[str, Any]:
        """Return the figures and the items of a run of the load, alone or with the other one beside it."""
        other = None
        if beside:
            other = subprocess.Popen(self.program(beside, 600, f"{name}-beside"), env=self.environment)
            self._until((self.folder / f"{name}-beside.ready").exists, f"the load beside {name}")
        launch = ["gpuagent", "run", "--name", name, "--", *self.program(load, self.seconds, name)]
        done = subprocess.run(launch, check=False, env=self.environment, capture_output=True, text=True)
        if other:
            other.terminate()
            other.wait()
        if done.returncode:
            raise SystemExit(f"{name} failed with exit code {done.returncode}\n{done.stdout}\n{done.stderr}")
        row = self.figures(_RUN.replace("{figures}", _FIGURES), name)
        return {**row, "items": int((self.folder / name).read_text())}


def compare(site: Loads, rounds: int) -> None:
    """Print each run's share beside what is known of it."""
    titles = ("items", "GPU, J", "items, J", "+ idle", "least", "share", "most")
    print(f"{'run':<34}{'seconds':>9}{''.join(f'{title:>9}' for title in titles)}")
    held = runs = 0
    for number in range(rounds):
        alone = {load: site.measure(f"{load}-{number}", load) for load in LOADS}
        for load, other in (LOADS, LOADS[::-1]):
            both = site.measure(f"{load}-{number}-beside-{other}", load, other)
            idle_watts = min(alone[load]["idle_watts"], alone[other]["idle_watts"])
            of_an_item = (alone[load]["joules"] - idle_watts * alone[load]["seconds"]) / alone[load]["items"]
            low = of_an_item * both["items"]
            high = low + idle_watts * both["seconds"]
            cells = (both["items"], both["joules"], low, high, both["least"], both["share"], both["most"])
            texts = "".join(f"{'' if cell is None else f'{cell:.0f}':>9}" for cell in cells)
            print(f"{load + ' beside ' + other:<34}{both['seconds']:>9.1f}{texts}", flush=True)
            runs += 1
            held += both["least"] <= low and high <= both["most"]
        for load, found in alone.items():
            print(
                f"{load + ' alone':<34}{found['seconds']:>9.1f}{found['items']:>9}{found['joules']:>9.0f}", flush=True
            )
    print(f"the bounds hold all that is possible of the run's energy in {held} of {runs} runs")


def main() -> None:
    """Compare, or be a load."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=20)
    parser.add_argument("--work", choices=LOADS, help=argparse.SUPPRESS)
    parser.add_argument("--file", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.work:
        work(options.work, options.seconds, options.file)
        return
    with tempfile.TemporaryDirectory() as folder:
        site = Loads(Path(folder), options.seconds)
        try:
            site.start()
            compare(site, options.rounds)
        finally:
            site.stop()


if __name__ == "__main__":
    main()
