import os
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuagent_workloads.training.tokens import read_tokens
from tests.unit.workloads.runs import refusal


def refused(path: Path, vocabulary: int = 100, at_least: int = 1) -> str:
    complaint = refusal(read_tokens, path, vocabulary, at_least)
    assert str(path) in complaint
    return complaint


@given(tokens=st.lists(st.integers(0, 65_535), min_size=1))
def test_what_was_written_is_read_back(tmp_path_factory: pytest.TempPathFactory, tokens: list[int]) -> None:
    path = tmp_path_factory.mktemp("tokens") / "train.bin"
    path.write_bytes(b"".join(token.to_bytes(2, "little") for token in tokens))
    np.testing.assert_array_equal(read_tokens(path, max(tokens) + 1, len(tokens)), tokens)
    assert f"token {max(tokens)}," in refused(path, vocabulary=max(tokens))
    assert f"must hold {len(tokens) + 1}" in refused(path, 65_536, len(tokens) + 1)


@pytest.mark.parametrize("content", [b"", b"\x01", b"\x01\x00\x02"])
def test_a_file_of_no_whole_tokens_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "train.bin"
    path.write_bytes(content)
    assert f"has {len(content)} bytes" in refused(path)


def test_what_is_no_file_is_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for name in ("missing", "pipe", ""):
        assert "not a file" in refused(tmp_path / name)


def test_a_large_file_is_checked_to_its_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gpuagent_workloads.training.tokens._CHUNK_TOKENS", 7)
    path = tmp_path / "train.bin"
    path.write_bytes(bytes(2 * 50) + b"\x64\x00")
    assert "a token 100" in refused(path)
