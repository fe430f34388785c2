import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuagent.runs.output import PIECE_BYTES, TAIL_BYTES, read_piece


def pieces(path: Path, *, has_ended: bool = True) -> list[str]:
    """Return all pieces of a file from its start, as a reader gets them."""
    texts: list[str] = []
    offset = 0
    while not (piece := read_piece(path, offset, has_ended=has_ended)).at_end and piece.text:
        offset, texts = piece.next_offset_bytes, [*texts, piece.text]
    return [*texts, piece.text]


@given(
    text=st.text(st.sampled_from("ab ü𠀀\n\r"), max_size=200),
    repeats=st.sampled_from([1, 700, 3000]),
)
def test_pieces_add_up_to_the_file(tmp_path_factory: pytest.TempPathFactory, text: str, repeats: int) -> None:
    path = tmp_path_factory.mktemp("run") / "stdout"
    path.write_bytes((text * repeats).encode())
    assert "".join(pieces(path)) == text * repeats


def test_a_line_waits_for_its_end_while_the_run_goes_on(tmp_path: Path) -> None:
    path = tmp_path / "stdout"
    assert read_piece(path, None, has_ended=False) == read_piece(path, 0, has_ended=False)
    path.write_text("one\ntw")
    first = read_piece(path, None, has_ended=False)
    assert (first.text, first.next_offset_bytes, first.at_end) == ("one\n", 4, False)
    with path.open("a") as file:
        file.write("o\rthree")
    assert read_piece(path, 4, has_ended=False).text == "two\r"
    last = read_piece(path, 8, has_ended=True)
    assert (last.text, last.at_end) == ("three", True)


def test_a_tail_is_the_end_of_the_file(tmp_path: Path) -> None:
    path = tmp_path / "stdout"
    path.write_text("x" * TAIL_BYTES + "end\n")
    assert read_piece(path, None, has_ended=True).text == "x" * (TAIL_BYTES - 4) + "end\n"


KEY = "-----BEGIN PRIVATE KEY-----\n" + "\n".join(["MIIEvQIBADANBgkq"] * 60) + "\n-----END PRIVATE KEY-----\n"


@given(before=st.integers(0, 3000))
def test_a_secret_is_hidden_wherever_it_is_cut(tmp_path_factory: pytest.TempPathFactory, before: int) -> None:
    path = tmp_path_factory.mktemp("run") / "stdout"
    path.write_text(
        "." * (PIECE_BYTES - before) + f" \n{KEY}after\npassword=hunter2\n" + "." * (TAIL_BYTES - before // 2)
    )
    for text in ("".join(pieces(path)), read_piece(path, None, has_ended=True).text):
        assert "MIIE" not in text
        assert "hunter2" not in text


def test_pipes_and_links_are_not_read_as_output(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("mine")
    (tmp_path / "stdout").symlink_to(tmp_path / "secret")
    os.mkfifo(tmp_path / "stderr")
    for stream in ("stdout", "stderr"):
        assert read_piece(tmp_path / stream, 0, has_ended=True).text == ""
