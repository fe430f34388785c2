#!/usr/bin/env python3
"""The same program as a run of `gpuagent run` and as a job that is merely observed, on the first GPU, in turns.

    PATH=…:$PATH python3 benchmarks/on_gpu/observed.py [--pairs 3] [--steps N]

It starts a collector and an agent of its own in a temporary folder, and needs no Slurm: the programs have its
variables, by which the agent knows a job that has no control group. A launched program has them too, so it is measured
both ways at once: the ratio of its run to its job has no noise between two processes. Then two jobs share the GPU.
`itself` is what the program measured before its interpreter ended. `gpuagent`, `collector` and this Python are those
that have gpuagent; PROGRAM_PYTHON, by default the same, has torch. It takes about 150 s.
"""

import argparse
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

_AGENT = ("gpuagent", "start", "--owners", "full", "--node-name", "observed", "--platform", "one-gpu")
_FIGURES = ("seconds", "gpu_percent", "joules", "cpu_seconds")

# A job that ended counts once both its own state and that of its GPU have come.
_JOB = """
SELECT epoch(max(ended_at) - min(started_at)) AS seconds,
    100 * max(gpu_seconds) / max(observed_seconds) FILTER (device_id IS NOT NULL) AS gpu_percent,
    arg_max({{'joules': energy_joules}}, time) FILTER (device_id IS NOT NULL).joules AS joules,
    max(cpu_seconds) AS cpu_seconds
FROM owners WHERE number = '{name}' HAVING count(ended_at) FILTER (device_id IS NULL) > 0
"""

_RUN = """
WITH run AS (
    SELECT run_id, node_id, started_at, ended_at FROM runs WHERE workload = '{name}' AND ended_at IS NOT NULL
        AND run_id IN (SELECT run_id FROM run_metrics)
), passed AS (
    SELECT cpu_cores, epoch(time - coalesce(lag(time) OVER (ORDER BY time), started_at)) AS seconds
    FROM process_samples JOIN run USING (run_id)
), busy AS (
    SELECT avg(utilization_percent) AS gpu_percent FROM gpu_samples AS sample JOIN run USING (node_id)
    WHERE sample.time BETWEEN run.started_at AND run.ended_at
)
SELECT epoch(ended_at - started_at) AS seconds, (SELECT gpu_percent FROM busy) AS gpu_percent,
    (SELECT sum(energy_joules) FROM run_energy JOIN run USING (run_id) WHERE phase IS NULL AND step IS NULL) AS joules,
    (SELECT sum(cpu_cores * seconds) FROM passed) AS cpu_seconds
FROM run
"""


def train(steps: int, file: str) -> None:
    """Train for so many steps, and write what the process itself measured."""
    import torch

    device = "cuda" if torch.cuda.is_available() else "cpu"
    width = 4096 if device == "cuda" else 256
    torch.set_num_threads(1)
    model = torch.nn.Sequential(*(torch.nn.Linear(width, width) for _ in range(4))).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    batch = torch.randn(width, width, device=device)
    for _ in range(steps):
        optimizer.zero_grad()
        loss = model(batch).square().mean()
        loss.backward()
        optimizer.step()
        loss.item()
    times = os.times()
    stat = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
    up_seconds = float(Path("/proc/uptime").read_text().split()[0])
    seconds = up_seconds - int(stat[19]) / os.sysconf("SC_CLK_TCK")
    Path(file).write_text(json.dumps({"seconds": seconds, "cpu_seconds": times.user + times.system}))


class Site:
    """A collector and an agent, and the programs that they measure."""

    def __init__(self, folder: Path, steps: int) -> None:
        self.folder, self.steps = folder, steps
        self.environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith(("SLURM_", "GPUAGENT_"))},
            "GPUAGENT_RUNTIME_DIR": f"{folder}/runtime",
            "GPUAGENT_SPOOL_DIR": f"{folder}/spool",
            "GPUAGENT_TOKEN_FILE": f"{folder}/token",
        }
        self.processes: list[subprocess.Popen[bytes]] = []

    def start(self, agent: Sequence[str] = _AGENT) -> None:
        """Start the collector, then the agent by this command."""
        self._begin(
            "collector", "collector", "serve", "--listen", "127.0.0.1:0", "--store", f"{self.folder}/runs.duckdb"
        )
        listening = self._until(lambda: re.search(r"127\.0\.0\.1:\d+", self._log("collector")), "the collector")
        self.environment["GPUAGENT_COLLECTOR"] = listening[0]
        self._begin("gpuagent", *agent)
        self._until(lambda: "sampling" in self._log("gpuagent"), "the agent")

    def stop(self) -> None:
        """Stop both, the agent first."""
        for process in reversed(self.processes):
            process.terminate()
            process.wait()

    def begin(self, job: str, *, is_launched: bool) -> "subprocess.Popen[bytes]":
        """Begin the program, as a job that has this number; launched, it is a run of this name too."""
        variables = {"SLURM_JOB_ID": job, "SLURM_JOB_NAME": "observed", "SLURM_JOB_GPUS": "0"}
        python = os.environ.get("PROGRAM_PYTHON", sys.executable)
        program = [python, __file__, "--steps", str(self.steps), "--train", f"{self.folder}/{job}.json"]
        if not is_launched:
            return subprocess.Popen(program, env={**self.environment, **variables})
        given = [f"{name}={value}" for name, value in variables.items()]
        launch = ["gpuagent", "run", "--name", f"run-{job}", "--", "env", *given, *program]
        return subprocess.Popen(launch, env=self.environment, stdout=subprocess.DEVNULL)

    def run(self, *jobs: str, is_launched: bool = False) -> None:
        """Run the program as these jobs, all at once."""
        for process in [self.begin(job, is_launched=is_launched) for job in jobs]:
            if process.wait():
                log = self._log("gpuagent")[-2000:]
                raise SystemExit(f"a program failed with exit code {process.returncode}\n{log}")

    def figures(self, sql: str, name: str) -> dict[str, Any]:
        """Return the figures that the store has, once the end is there."""
        found = self._until(lambda: self.ask(sql.format(name=name)), f"the figures of {name}")
        row: dict[str, Any] = found[0]
        return row

    def own(self, job: str) -> dict[str, Any]:
        """Return what the program measured of itself."""
        values: dict[str, Any] = json.loads((self.folder / f"{job}.json").read_text())
        return values

    def ask(self, sql: str) -> list[dict[str, Any]]:
        """Return the rows of a query of the store."""
        command = ["collector", "query", "sql", sql, "--json"]
        done = subprocess.run(command, check=False, env=self.environment, capture_output=True, text=True)
        if done.returncode:
            raise SystemExit(done.stderr)
        rows: list[dict[str, Any]] = json.loads(done.stdout)
        return rows

    def _begin(self, name: str, *command: str) -> None:
        with (self.folder / f"{name}.log").open("wb") as log:
            self.processes.append(subprocess.Popen(command, env=self.environment, stdout=log, stderr=log))

    def _log(self, name: str) -> str:
        return (self.folder / f"{name}.log").read_text()

    def _until(self, ask: Callable[[], Any], what: str) -> Any:
        for _ in range(150):
            if any(process.poll() is not None for process in self.processes):
                break
            if found := ask():
                return found
            time.sleep(0.2)
        logs = "\n".join(self._log(name)[-2000:] for name in ("collector", "gpuagent") if (self.folder / name).exists())
        cgroup = Path("/proc/self/cgroup").read_text()
        raise SystemExit(f"{what} did not come within 30 s; control groups here:\n{cgroup}{logs}")


def show(title: str, values: dict[str, Any]) -> None:
    """Print one line of the table."""
    cells = (f"{values[name]:12.4f}" if values.get(name) is not None else f"{'':>12}" for name in _FIGURES)
    print(f"{title:<34}{''.join(cells)}", flush=True)


def ratios(ours: dict[str, Any], theirs: dict[str, Any]) -> dict[str, Any]:
    """Return the ratios of the figures that both have."""
    both = (name for name in _FIGURES if ours.get(name) is not None and theirs.get(name))
    return {name: ours[name] / theirs[name] for name in both}


def compare(site: Site, pairs: int) -> None:
    """Print the figures of each program, and the ratios' medians."""
    found: dict[str, list[dict[str, Any]]] = {}

    def note(title: str, values: dict[str, Any]) -> None:
        found.setdefault(title, []).append(values)

    print(f"{'':<34}{''.join(f'{name:>12}' for name in _FIGURES)}")
    for pair in range(pairs):
        launched, observed = str(1000 + 2 * pair), str(1001 + 2 * pair)
        for job in (launched, observed) if pair % 2 == 0 else (observed, launched):
            site.run(job, is_launched=job == launched)
        run, same = site.figures(_RUN, f"run-{launched}"), site.figures(_JOB, launched)
        other = site.figures(_JOB, observed)
        show(f"{launched} launched: run", run)
        show(f"{launched} launched: job", same)
        show(f"{launched} launched: itself", site.own(launched))
        show(f"{observed} observed: job", other)
        show(f"{observed} observed: itself", site.own(observed))
        note("job / run, same process", ratios(same, run))
        note("job / run, in turns", ratios(other, run))
        note("job / itself, launched", ratios(same, site.own(launched)))
        note("job / itself, observed", ratios(other, site.own(observed)))
        note("run / itself", ratios(run, site.own(launched)))
    print("ratios, medians:")
    for title, each in found.items():
        known = {name: [one[name] for one in each if name in one] for name in _FIGURES}
        show(title, {name: statistics.median(values) for name, values in known.items() if values})
    print("two jobs at once on one GPU; energy is absent, since it cannot be told apart:")
    site.run("2001", "2002")
    for job in ("2001", "2002"):
        show(f"{job} observed: job", site.figures(_JOB, job))
        show(f"{job} observed: itself", site.own(job))


def main() -> None:
    """Compare, or be the program."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=3)
    parser.add_argument("--steps", type=int, default=400, help="of four layers of 4096; without a GPU of 256")
    parser.add_argument("--train", metavar="FILE", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.train:
        train(options.steps, options.train)
        return
    with tempfile.TemporaryDirectory() as folder:
        site = Site(Path(folder), options.steps)
        try:
            site.start()
            compare(site, options.pairs)
        finally:
            site.stop()


if __name__ == "__main__":
    main()
