"""A snapshot in one line."""

from collections.abc import Iterator

from gpuagent_collector.watch.snapshot import Snapshot


def summary(snapshot: Snapshot) -> Iterator[tuple[str, str | None]]:
    """Yield the parts of the line, each with its style."""
    gpus = [gpu for node in snapshot.nodes for gpu in node.gpus if gpu.is_whole]
    silent = sum(node.is_silent for node in snapshot.nodes)
    left = sum(node.has_left for node in snapshot.nodes)
    held_back = sum(gpu.is_held_back is True for gpu in gpus)
    yield _counted(len(snapshot.nodes), "node"), None
    if silent:
        yield f"{silent:,} silent", "red"
    if left:
        yield f"{left:,} left", "dim"
    yield _counted(len(gpus), "GPU"), None
    if held_back:
        yield f"{held_back:,} held back", "yellow"
    yield f"{_counted(sum(run.is_open for run in snapshot.runs), 'run')} under way", None


def _counted(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
