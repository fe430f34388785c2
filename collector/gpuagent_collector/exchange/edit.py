"""Edits of runs, which are appended: the view `runs` shows the last one of each column."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

import duckdb

from gpuagent_collector.json_cells import parse_object
from gpuagent_collector.query.ask import ask_within
from gpuagent_collector.query.named_runs import find_run_ids
from gpuagent_collector.store import Store
from gpuagent_common.errors import MisuseError
from gpuagent_common.naming import check_label
from gpuagent_common.program_name import check_program_name

_LABELS = "SELECT run_id, CAST(labels AS VARCHAR) FROM runs WHERE run_id = ANY(?)"

MAX_NOTE_CHARACTERS = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class RunEdit:
    """A change of runs. None: the column stays; an empty label removes it."""

    labels: Mapping[str, str]
    workload: str | None = None
    note: str | None = None
    is_excluded: bool | None = None


def edit_runs(store: Store, run_ids: Sequence[str], edit: RunEdit, now: datetime) -> None:
    """Append an edit of the runs with these identities, or beginnings of one, at `now`, in UTC.

    Raises:
        MisuseError: there is no such run, several begin like this, or a name, label or note is invalid.
        StoreError: the store failed; it is unchanged.
    """
    if edit.workload is not None:
        check_program_name(edit.workload)
    for name, value in edit.labels.items():
        # An empty value removes the label.
        check_label(name, value or "-", "--label")
    if edit.note and (len(edit.note) > MAX_NOTE_CHARACTERS or not edit.note.isprintable()):
        raise MisuseError(f"--note takes up to {MAX_NOTE_CHARACTERS} printable characters on one line")
    with store.transaction() as connection:
        found = find_run_ids(ask_within(connection), run_ids)
        labels = _stored_labels(connection, found)
        if unknown := sorted(set(found) - labels.keys()):
            raise MisuseError(f"there is no run {unknown[0]}; `collector runs` lists them")
        for run_id in found:
            merged = {name: value for name, value in {**labels[run_id], **edit.labels}.items() if value}
            connection.execute(
                "INSERT INTO run_edits VALUES (?, ?, ?, ?, ?, ?)",
                [
                    run_id,
                    now,
                    edit.workload,
                    json.dumps(merged) if edit.labels else None,
                    edit.note,
                    edit.is_excluded,
                ],
            )


def _stored_labels(connection: duckdb.DuckDBPyConnection, run_ids: Sequence[str]) -> dict[str, dict[str, str]]:
    rows = connection.execute(_LABELS, [list(run_ids)]).fetchall()
    return {run_id: parse_object(labels) or {} for run_id, labels in rows}
