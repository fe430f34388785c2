import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuagent_common.text import harmless, shorten_options


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
