"""The checker itself: what it must find, and what it must not take for a loss."""

from pathlib import Path

import pytest

from tests.fault.invariants import Findings, Flush, Gap, Stored, compare, count, read_journal

FIRST = Flush(numbers=range(5), from_unix_nano=100, to_unix_nano=110)
SECOND = Flush(numbers=range(5, 10), from_unix_nano=200, to_unix_nano=210)


def stored(numbers: str = "0123456789", records: str = "49", gaps: tuple[Gap, ...] = ()) -> Stored:
    return Stored(samples=count(map(int, numbers)), records=count(map(int, records)), gaps=gaps)


def full(from_unix_nano: int, to_unix_nano: int, messages: int = 1) -> Gap:
    return Gap(reason="spool_full", from_unix_nano=from_unix_nano, to_unix_nano=to_unix_nano, messages=messages)


def test_everything_once_is_fine() -> None:
    assert compare([FIRST, SECOND], stored()).are_none


def test_what_was_never_told_to_be_durable_may_be_stored() -> None:
    assert compare([FIRST], stored()).are_none


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (stored(numbers="012356789"), Findings(lost=frozenset({4}))),
        (stored(records="4"), Findings(lost=frozenset({9}))),
        (stored(numbers="01234567899"), Findings(duplicated=frozenset({9}))),
        (stored(records="449"), Findings(duplicated=frozenset({4}))),
    ],
    ids=["a sample is missing", "a record is missing", "a sample is there twice", "a record is there twice"],
)
def test_what_is_missing_or_there_twice_is_found(content: Stored, expected: Findings) -> None:
    found = compare([FIRST, SECOND], content)
    assert found == expected
    assert not found.are_none


def test_samples_may_be_missing_where_a_gap_tells_of_them_and_nowhere_else() -> None:
    here, elsewhere = full(100, 110), full(300, 400)
    assert compare([FIRST, SECOND], stored("56789", gaps=(here,))).are_none
    assert compare([FIRST, SECOND], stored("56789", gaps=(elsewhere,))).lost == frozenset(range(5))


def test_a_full_spool_never_excuses_a_record() -> None:
    assert compare([FIRST], stored("", "", gaps=(full(100, 110),))).lost == frozenset({4})


def test_more_given_up_than_told_is_found() -> None:
    found = compare([FIRST, SECOND], stored("", gaps=(full(100, 210, messages=1),)))
    assert (found.given_up, found.told, found.are_none) == (2, 1, False)


def test_a_damaged_spool_excuses_what_was_made_before_it_was_found_so() -> None:
    gap = Gap(reason="spool_damaged", from_unix_nano=150, to_unix_nano=150, messages=None)
    assert compare([FIRST, SECOND], stored("56789", "9", gaps=(gap,))).are_none
    assert compare([FIRST, SECOND], stored("01234", "4", gaps=(gap,))).lost == frozenset(range(5, 10))


def test_a_damaged_message_has_its_time_before_its_flush_is_noted() -> None:
    gap = Gap(reason="spool_damaged", from_unix_nano=90, to_unix_nano=FIRST.to_unix_nano - 1, messages=1)
    assert compare([FIRST], stored("01234", "", gaps=(gap,))).are_none


def test_a_line_that_the_generator_was_killed_in_is_not_counted(tmp_path: Path) -> None:
    journal = tmp_path / "journal-1"
    journal.write_text(FIRST.line() + SECOND.line()[:-1])
    assert read_journal(journal) == [FIRST]
