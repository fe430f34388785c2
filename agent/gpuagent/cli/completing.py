"""What a shell may put in for words that are half typed."""

import sys

import click
from click.shell_completion import CompletionItem

from gpuagent_common.errors import GpuAgentError


def workloads(context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Return the built-in workloads; nothing behind the first word of `run`, where their parameters stand."""
    if context.params.get("words"):
        return []
    return _items(context, incomplete, kind=None)


def interference(context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Return the workloads that are made to run beside others."""
    return _items(context, incomplete, kind="interference")


def _items(context: click.Context, incomplete: str, *, kind: str | None) -> list[CompletionItem]:
    from gpuagent.runs.catalogue import Catalogue

    try:
        known = Catalogue(context.params.get("python") or sys.executable).workloads().values()
    except GpuAgentError:
        return []
    fitting = (workload for workload in known if kind in (None, workload.kind) and workload.name.startswith(incomplete))
    return [CompletionItem(workload.name, help=workload.summary) for workload in fitting]
