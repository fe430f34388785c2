"""The record of who asked for what stays small, private, and one printable line for each thing."""

import json
import logging
import os
from collections.abc import Iterator
from logging.handlers import BufferingHandler
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuagent_collector.trust import audit
from gpuagent_collector.trust.audit import MAX_IN_WINDOW, WINDOW_SECONDS, Refusals
from gpuagent_common.errors import GpuAgentError


@pytest.fixture
def record(tmp_path: Path) -> Iterator[Path]:
    """A file that the record is kept in until the end of the test."""
    log = logging.getLogger("gpuagent.audit")
    level = log.level
    path = tmp_path / "audit.jsonl"
    audit.keep_in(str(path))
    (handler,) = log.handlers
    try:
        yield path
    finally:
        audit.sum_up(at_end=True)
        log.removeHandler(handler)
        handler.close()
        log.setLevel(level)
        log.propagate = True


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_who_is_refused_again_and_again_is_counted_and_not_written_down(record: Path) -> None:
    for port in range(5000):
        audit.refused(who=None, peer=f"ipv4:192.0.2.1:{port}", method="/x")
    audit.refused(who="gpu-7", peer="ipv4:192.0.2.2:1", method="/x")
    audit.sum_up(at_end=True)
    told = lines(record)
    assert len(told) == MAX_IN_WINDOW + 2
    assert told[MAX_IN_WINDOW]["who"] == "gpu-7", "strangers do not hide who has a token"
    assert (told[-1]["action"], told[-1]["who"], told[-1]["more"]) == ("refused", None, 5000 - MAX_IN_WINDOW)


def test_each_minute_begins_anew() -> None:
    now = [0.0]
    refusals = Refusals(lambda: now[0])
    first = [refusals.count(None) for _ in range(MAX_IN_WINDOW + 3)]
    assert first.count(True) == MAX_IN_WINDOW
    now[0] = WINDOW_SECONDS - 1
    assert refusals.take_unwritten() == []
    now[0] = WINDOW_SECONDS
    assert refusals.take_unwritten() == [(None, 3)]
    assert all(refusals.count(None) for _ in range(MAX_IN_WINDOW))
    assert refusals.take_unwritten(at_end=True) == []


@given(text=st.text(max_size=50))
def test_a_line_is_one_line_of_printable_ascii_whatever_stands_in_it(text: str) -> None:
    handler = BufferingHandler(2)
    log = logging.getLogger("gpuagent.audit")
    log.addHandler(handler)
    log.setLevel(logging.INFO)
    try:
        audit.note("cancel", who=text, peer=text, run=text, sessions=[text])
    finally:
        log.removeHandler(handler)
        log.setLevel(logging.NOTSET)
    (line,) = (record.getMessage() for record in handler.buffer)
    assert line.isascii()
    assert line.isprintable()
    assert json.loads(line)["sessions"] == [text]


def test_no_line_is_longer_than_what_is_asked_for_may_be(record: Path) -> None:
    audit.note("cancel", who="ci", peer="x", run="r" * 10**6, sessions=["s" * 10**5] * 10**3)
    assert len(record.read_text()) < 4000 * 102


def test_a_record_that_was_moved_away_is_made_anew_for_its_owner_alone(record: Path) -> None:
    audit.note("query", who="a", peer="x")
    moved = record.rename(record.with_suffix(".1"))
    audit.note("query", who="b", peer="x")
    assert [[line["who"] for line in lines(path)] for path in (moved, record)] == [["a"], ["b"]]
    assert record.stat().st_mode & 0o777 == moved.stat().st_mode & 0o777 == 0o600


def test_a_pipe_that_nobody_reads_is_refused_at_once(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(GpuAgentError, match="audit log"):
        audit.keep_in(str(tmp_path / "pipe"))


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file to another user")
@pytest.mark.parametrize("is_link", [False, True])
def test_a_record_is_not_kept_where_another_user_left_a_file_or_link(tmp_path: Path, *, is_link: bool) -> None:
    left, own = tmp_path / "audit.jsonl", tmp_path / "own"
    if is_link:
        left.symlink_to(own)
    else:
        left.touch()
    os.chown(left, 12345, 12345, follow_symlinks=False)
    with pytest.raises(GpuAgentError, match="belongs to another user"):
        audit.keep_in(str(left))
