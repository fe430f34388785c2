"""Texts for a terminal: made harmless, and cut where they are long."""

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuagent_collector.present.answer import Answer, Bullets, Section, shorten_sides
from gpuagent_collector.present.shortening import shorten
from gpuagent_collector.present.table import Grid
from gpuagent_common.text import differing_words, harmless, shorten_options


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("gpu-1", "gpu-1"),
        ("Größe 3 × µs – °C", "Größe 3 × µs – °C"),
        ("\x1b[31mred", r"\x1b[31mred"),
        ("\x9b2J", r"\x9b2J"),
        ("a\nb\tc\r", r"a\nb\tc\r"),
        ("\u202etxt.exe", r"\u202etxt.exe"),
        ("\ud800", r"\ud800"),
        ("[bold]x[/]", "[bold]x[/]"),
    ],
)
def test_what_does_something_to_a_terminal_is_written_out(text: str, shown: str) -> None:
    assert harmless(text) == shown


@given(st.text())
def test_no_text_keeps_a_control_or_formatting_character(text: str) -> None:
    assert not {unicodedata.category(each) for each in harmless(text)} & {"Cc", "Cf", "Cs", "Zl", "Zp"}


def test_names_of_options_are_cut_until_the_texts_fit_and_stay_apart() -> None:
    texts = ["--batch-size 32 --lr 0.1 -v", "--batch-size 128 --lr 0.2 -v"]
    assert shorten_options(texts, 28) == texts
    assert shorten_options(texts, 24) == ["--batch… 32 --lr 0.1 -v", "--batch… 128 --lr 0.2 -v"]
    assert shorten_options(texts, 5) == ["--bat… 32 --lr 0.1 -v", "--bat… 128 --lr 0.2 -v"]
    alike = ["--learning-rate 1 --learning-steps 2", "a-b --x=1 - 2 --"]
    assert shorten_options(alike, 5) == ["--learning-r… 1 --learning-s… 2", "a-b --x=1 - 2 --"]
    assert shorten_options([], 5) == []


def test_lines_are_told_apart_by_words_with_their_options() -> None:
    assert differing_words(["a --x 1 | cat", "a --x 2 | cat"]) == ["--x 1", "--x 2"]
    assert differing_words(["sleep 1 && a", "sleep 2 && a"]) == ["sleep 1", "sleep 2"]
    assert differing_words(["xxd f > g", "hexdump f > g"]) == ["xxd", "hexdump"]
    assert differing_words(["a b", "a b c"]) == ["a b", "a b c"]
    assert differing_words(["a b"]) == ["a b"]


LONG = "--learning-rate 0.001 --optimizer adamw --weight-decay 0.01 --batch-size {} --epochs 5"


@given(st.lists(st.text(alphabet="ab", max_size=30), max_size=8), st.integers(min_value=8, max_value=20))
def test_different_texts_stay_different_and_short_ones_as_they_are(texts: list[str], most: int) -> None:
    cut = shorten(texts, most)
    assert [len(set(cut)), len(cut)] == [len(set(texts)), len(texts)]
    assert all(len(short) <= most for short in cut) or cut == texts
    assert all(short == text for short, text in zip(cut, texts, strict=True) if len(text) <= most)


def test_the_part_that_differs_is_kept() -> None:
    small, large = shorten([LONG.format(32), LONG.format(128)], 40)
    assert "size 32" in small
    assert "size 128" in large


def test_where_texts_differ_in_several_places_what_all_have_is_left_out() -> None:
    form = "--learning-rate {} --optimizer {} --batch-size {} --epochs 5"
    values = [(rate, name, batch) for rate in ("0.001", "0.01") for name in ("adamw", "sgd") for batch in (32, 128)]
    shown = shorten([form.format(*each) for each in values], 40)
    assert shown == ["…{} …{} …{} …".format(*each) for each in values]


@pytest.mark.parametrize("before", range(30))
def test_what_is_shown_of_a_text_is_there_once_and_in_its_order(before: int) -> None:
    text = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
    short, _ = shorten([text, f"{text[:before]}{'-' * 40}"], 20)
    shown = short.replace("…", "")
    assert sorted(shown, key=text.index) == list(dict.fromkeys(shown))
    assert text[before] in short
    # Within the text, something is left out wherever it says so.
    assert "…" not in short[:-1] or short.replace("…", "") not in text


def test_commands_between_backquotes_stay_whole() -> None:
    sides = [LONG.format(32), LONG.format(128)]
    (shown,) = shorten_sides([Section(heading=f"{sides[0]}: `compare {sides[0]}`", parts=())], sides)
    assert shown.heading.endswith(f": `compare {sides[0]}`")
    assert not shown.heading.startswith(sides[0])


def test_names_of_sides_are_cut_in_texts_and_tables_and_not_in_remedies() -> None:
    sides = [LONG.format(32), LONG.format(128), "short"]
    section = Section(
        heading=sides[0],
        parts=(
            f"{sides[0]} against {sides[1]} and short",
            Grid(header=("", sides[0]), rows=((sides[1], "1"),), left=(True, False)),
            Bullets(points=((f"of {sides[0]}", f"collector compare {sides[0]}"),)),
        ),
    )
    (shown,) = shorten_sides([section], sides)
    paragraph, grid, bullets = shown.parts
    assert isinstance(paragraph, str)
    assert isinstance(grid, Grid)
    assert isinstance(bullets, Bullets)
    assert "size 32" in shown.heading
    assert len(paragraph) < 140
    assert paragraph.endswith(" and short")
    assert "size 32" in grid.header[1]
    assert "size 128" in grid.rows[0][0]
    assert bullets.points[0][1] == f"collector compare {sides[0]}"
    (same,) = shorten_sides([section], ["short"])
    assert (same.heading, *same.parts) == (section.heading, *section.parts)


def test_only_a_screen_cuts_the_names_of_sides() -> None:
    options = ("batch-size", "optimizer", "learning-rate", "weight-decay")
    sides = [" ".join(f"--{option} {number}" for option in options) for number in (1, 2)]
    answer = Answer(heading=sides[0], text="", sides=sides)
    (cut, *_), (whole, *_) = answer.document(cut=True), answer.document()
    assert len(cut.heading) < len(whole.heading)
    assert whole.heading == sides[0]
