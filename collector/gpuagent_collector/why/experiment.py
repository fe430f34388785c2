"""The experiment file of a ladder."""

import json
import shlex
from collections.abc import Iterator
from typing import Any

from gpuagent_collector.runs.settings import Settings
from gpuagent_collector.why.ladder import LABEL, Ladder
from gpuagent_common.limits import memory_text


def write_experiment(ladder: Ladder) -> str:
    """Return the text of the file: a cell for each rung, and the command that divides the ratio."""
    return "\n".join(_lines(ladder)) + "\n"


def _lines(ladder: Ladder) -> Iterator[str]:
    comparison, (foot, top) = ladder.comparison, ladder.comparison.layout.sides
    block, request = comparison.layout.blocks[0], comparison.request
    answer = ["plan", block.workload, "--why", foot, top, "--by", request.by]
    answer += ["--metric", request.metric] if request.metric else []
    answer += ["--where", ladder.where] if ladder.where else []
    yield "# Each cell differs from the one before it in one fact. The order decides: what two facts cause only"
    yield "# together counts for the later one. To add a fact, insert an entry and number the labels anew."
    for each in ladder.fixed:
        yield f"# Not separated: {each.title} ({' / '.join(each.values)}); {each.remedy}."
    yield f"name: {json.dumps(ladder.name)}"
    yield f"question: {json.dumps(f'Why do {foot} and {top} differ?')}"
    yield f"metric: {comparison.figures.primary.name}"
    yield f"repeats: {ladder.repeats}"
    yield "workloads:"
    # What torch sees of a CPU limit depends on the environment: as many threads in all cells are one fact less.
    facts = {rung.fact for rung in ladder.rungs}
    threads = not facts.isdisjoint({"CPU threads", "CPU limit"})
    run = next(cell.runs[0] for cell in block.cells if cell.runs)
    for number, rung in enumerate(ladder.rungs):
        what: dict[str, Any] = {"command": list(run.command), "name": block.workload}
        if ladder.observed:
            what["observe"] = True
        if not run.command:
            parameters = {name: value for name, value in block.parameters.items() if value is not None}
            if threads and rung.settings.threads:
                parameters["threads"] = int(rung.settings.threads)
            what = {"workload": block.workload, "parameters": parameters}
        first, *others = what.items()
        yield f"  - {first[0]}: {json.dumps(first[1])}"
        labels = {LABEL: f"{number} {rung.fact}"[:100]}
        for key, value in (*others, *_cell(rung.settings).items(), ("labels", labels)):
            yield f"    {key}: {json.dumps(value)}"
    yield "answer:"
    yield f"  - {json.dumps(shlex.join(answer))}"


def _cell(settings: Settings) -> dict[str, Any]:
    """Return the keys of an entry that differ from their defaults."""
    limits: dict[str, Any] = {} if settings.cpus is None else {"cpus": settings.cpus}
    if settings.memory_bytes is not None:
        text = memory_text(settings.memory_bytes)
        limits["memory"] = f"{settings.memory_bytes // 1024}K" if text.endswith("B") else text
    environment = settings.environment + (f":{settings.image}" if settings.image else "")
    given = {
        "environments": [environment],
        "limits": [limits] if limits else None,
        "with": [settings.interference.split("+")] if settings.interference != "none" else None,
        "options": {settings.environment: settings.options} if settings.options else None,
    }
    return {name: value for name, value in given.items() if value}
