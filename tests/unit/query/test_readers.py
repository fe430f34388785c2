import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pyarrow as pa
import pytest

from gpuagent_collector.errors import StoreIsHeldError
from gpuagent_collector.query import reader as reader_module
from gpuagent_collector.query.reader import Answer, FileReader, find_holder, open_reader
from gpuagent_common.errors import GpuAgentError, MisuseError
from tests.support.stores import make_store


@pytest.fixture
def nobody(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The address of a port that is taken and on which nobody listens, made the default one."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
        monkeypatch.setattr(reader_module, "DEFAULT_ADDRESS", address)
        yield address


@pytest.fixture
def somebody(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The address of a port on which something listens, made the default one."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
        monkeypatch.setattr(reader_module, "DEFAULT_ADDRESS", address)
        yield address


def test_a_named_store_is_read_whoever_listens(somebody: str, tmp_path: Path) -> None:
    store = make_store(tmp_path)
    reader = open_reader(address=None, token_file=None, store=str(store))
    assert reader.source == f"the store {store}"
    assert reader.sql("SELECT count(*) AS runs FROM runs").to_pylist() == [{"runs": 4}]
    reader.close()


def test_the_default_store_is_read_when_nobody_listens_and_never_replaces_a_named_collector(
    nobody: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_store(tmp_path)
    monkeypatch.chdir(tmp_path)
    with closing(open_reader(address=None, token_file=None, store=None)) as reader:
        assert isinstance(reader, FileReader)
    with pytest.raises(GpuAgentError, match=f"no collector listens at {nobody}"):
        open_reader(address=nobody, token_file=None, store=None)


def test_with_nothing_to_read_it_says_what_to_do(nobody: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(GpuAgentError, match=r"no runs\.duckdb here; start"):
        open_reader(address=None, token_file=None, store=None)


@pytest.mark.parametrize("address", ["localhost", "localhost:x", ":50051", "[::1", "host:99999"])
def test_an_address_that_is_none_is_misuse(address: str) -> None:
    with pytest.raises(MisuseError, match="HOST:PORT"):
        open_reader(address=address, token_file=None, store=None)


@pytest.mark.parametrize(("mode", "words"), [(None, "no token file .*/token"), (0o644, "chmod 600")])
def test_a_missing_or_readable_token_is_refused(somebody: str, tmp_path: Path, mode: int | None, words: str) -> None:
    token = tmp_path / "token"
    if mode is not None:
        token.touch()
        token.chmod(mode)
    with pytest.raises(GpuAgentError, match=words):
        open_reader(address=None, token_file=token, store=None)


def test_an_answer_that_was_cut_is_no_whole_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    reader = open_reader(address=None, token_file=None, store=str(make_store(tmp_path)))
    with reader.stream("FROM runs") as answer:
        monkeypatch.setattr(answer, "_truncated", lambda: True)
        with pytest.raises(GpuAgentError, match="cut at 4 rows"):
            answer.whole()
    reader.close()


def test_several_answers_can_be_taken_one_after_the_other(tmp_path: Path) -> None:
    reader = open_reader(address=None, token_file=None, store=str(make_store(tmp_path)))
    for _ in range(3):
        with pytest.raises(MisuseError):
            reader.sql("SELECT nothing FROM runs")
        with reader.stream("FROM range(1000000)") as answer:
            assert next(iter(answer)).num_rows
    reader.close()


def test_whether_an_answer_was_cut_short_is_not_asked_before_all_of_it_was_taken() -> None:
    def asked() -> bool:
        raise AssertionError("the rest of the answer would be fetched for this alone")

    batch = pa.record_batch({"a": [1]})
    answer = Answer(pa.RecordBatchReader.from_batches(batch.schema, [batch, batch]), asked)
    assert next(iter(answer)).num_rows == 1
    assert not answer.truncated


_LISTEN = """
import os, socket, sys
os.setuid(int(sys.argv[2]))
with socket.create_server(("127.0.0.1", 0)) as server:
    print(server.getsockname()[1], flush=True)
    input()
"""


def find_holder_of(*words: str | Path) -> tuple[str | None, str]:
    """Return the address that is found of such a process, and the one at which it listens."""
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        place = f"127.0.0.1:{process.stdout.readline().strip()}"
        error = StoreIsHeldError("held")
        error.holder = process.pid
        found = find_holder(error)
        process.communicate("\n")
    return found, place


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
@pytest.mark.parametrize("user", [0, 65_533])
def test_only_a_process_of_this_user_is_asked_for_the_store_that_it_has_open(user: int, program: Path) -> None:
    """It is sent the token, which another user could collect with a file of their own that they hold."""
    found, place = find_holder_of(sys.executable, program, "serve", str(user))
    assert found == (place if user == 0 else None)


def test_a_program_of_ones_own_that_has_a_store_open_is_not_asked_for_it(program: Path) -> None:
    other = program.rename(program.with_name("train.py"))
    assert find_holder_of(sys.executable, other, "serve", str(os.geteuid()))[0] is None


@pytest.fixture
def program() -> Iterator[Path]:
    """A program of the name of ours, which every user can read."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "collector"
        path.write_text(_LISTEN)
        path.parent.chmod(0o755)
        yield path
