#!/usr/bin/env python3
"""Print what an agent says of a program that it launched and of the same one that it merely observes, in turns.

`python3 benchmarks/on_gpu/observed.py [PAIRS [STEPS]]`, by default 3 pairs of 60 million parameters in 800 steps. A job
is a process with Slurm's variables, which is all that an agent without Slurm's groups sees of one. At the end two jobs
share the GPU. The goal is a ratio of 0.99 to 1.01; the kernel's account of a job's CPU time stands beside ours.
"""

import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

from tests.support.servers import Node, until

_PROGRAM = [sys.executable, str(Path(__file__).with_name("plain_llama.py")), "--model", "60m", "--batch-size", "8"]
_RUN = """
SELECT epoch(ended_at - started_at) AS seconds,
       (SELECT any_value(value) FROM metrics WHERE run_id = runs.run_id AND metric = 'gpu_energy_run_joules') AS joules,
       (SELECT avg(utilization_percent) / 100 FROM gpu_samples WHERE time BETWEEN started_at AND ended_at) * seconds
           AS gpu_seconds,
       (SELECT avg(cpu_cores) FROM process_samples WHERE process_samples.run_id = runs.run_id) * seconds AS cpu_seconds,
       EXISTS (SELECT * FROM metrics WHERE run_id = runs.run_id) AS summarized
FROM runs ORDER BY started_at DESC LIMIT 1"""
_JOB = """
SELECT max(epoch(ended_at - started_at)) AS seconds, max(energy_joules) AS joules, max(gpu_seconds) AS gpu_seconds,
       max(cpu_seconds) AS cpu_seconds
FROM owners WHERE number = '{}'"""


def start_job(number: int, words: list[str]) -> "subprocess.Popen[bytes]":
    """Start the program as a job of Slurm's that nobody launched through us."""
    variables = {"SLURM_JOB_ID": str(number), "SLURM_JOB_NAME": "observed", "SLURM_JOB_GPUS": "0"}
    return subprocess.Popen(words, env=os.environ | variables, stdout=subprocess.DEVNULL, stdin=subprocess.DEVNULL)


def observe(node: Node, number: int, words: list[str]) -> dict[str, float | None]:
    """Run the program as a job; return the figures of the store, and the kernel's CPU time."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    job = start_job(number, words)
    job.wait()
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    (figures,) = until(lambda: ended(node, number), "the job's end")
    kernel = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return {**figures, "kernel_cpu_seconds": kernel}


def ended(node: Node, number: int) -> list[dict[str, float | None]]:
    """Return the figures of a job, once its end is stored."""
    return [row for row in node.ask(_JOB.format(number)) if row["seconds"] is not None]


def main() -> None:
    """Make the pairs and print them."""
    pairs = int(sys.argv[1]) if len(sys.argv) > 1 else 3
    words = [*_PROGRAM, "--steps", sys.argv[2] if len(sys.argv) > 2 else "800"]
    figures: dict[str, list[tuple[float | None, float | None]]] = {}
    with tempfile.TemporaryDirectory(prefix="gpuagent-observed-") as folder:
        node = Node(Path(folder))
        try:
            node.serve()
            agent = node.start("gpuagent", "start", log="agent.log")
            until(lambda: "sampling" in (node.folder / "agent.log").read_text(), "the agent's first line")
            for pair in range(pairs):
                node.run("gpuagent", "run", "--deliver-within", "60", "--", *words)
                until(lambda: node.ask(_RUN)[0]["summarized"], "the run's figures")
                launched = node.ask(_RUN)[0]
                observed = observe(node, 100 + pair, words)
                for name, value in observed.items():
                    figures.setdefault(name, []).append((launched.get(name, launched["cpu_seconds"]), value))
            both = [start_job(number, words) for number in (201, 202)]
            began = time.monotonic()
            for job in both:
                job.wait()
            shared = [until(lambda each=each: ended(node, each), "a job's end")[0] for each in (201, 202)]  # type: ignore[misc]
            took = time.monotonic() - began
            node.stop(agent)
        finally:
            node.close()
    print("| figure | launched | observed | observed / launched |\n|---|--:|--:|--:|")
    for name, values in figures.items():
        known = [(ours, theirs) for ours, theirs in values if ours and theirs]
        for ours, theirs in known:
            print(f"| {name} | {ours:.2f} | {theirs:.2f} | {theirs / ours:.3f} |")
        if known:
            print(f"| {name}, median | | | {median(theirs / ours for ours, theirs in known):.3f} |")
    print(f"two jobs at once, {took:.1f} s:", *shared)


if __name__ == "__main__":
    main()
