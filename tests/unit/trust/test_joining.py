"""What `gpuagent join` keeps, and for which collector the agent uses it."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuagent.cli.options import take_connection
from gpuagent.delivery.joined import Joined, split
from gpuagent_common.connection import (
    DEFAULT_ADDRESS,
    TlsFiles,
    TokenError,
    configuration_folder,
    default_token_file,
    read_token,
)
from gpuagent_common.errors import GpuAgentError, MisuseError

CERTIFICATE = "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n"
HOME = "collector.example.org:50051"


def taken(**given: Any) -> Any:
    nothing = dict.fromkeys(("collector", "token_file", "ca_file", "client_cert", "client_key"))
    return take_connection({**nothing, **given})


def test_an_empty_address_is_no_missing_one() -> None:
    with pytest.raises(MisuseError, match="HOST:PORT"):
        taken(collector="")


def test_what_is_kept_only_its_owner_can_read() -> None:
    joined = Joined.usual()
    joined.keep(HOME, f"secret\n{CERTIFICATE}")
    assert {path.stat().st_mode & 0o777 for path in joined.folder.iterdir()} == {0o600}
    assert joined.folder.stat().st_mode & 0o777 == 0o700
    assert read_token(joined.token) == "secret"
    assert joined.ca.read_text() == CERTIFICATE


def test_the_token_of_a_collector_of_the_same_user_is_left_alone() -> None:
    owner_s = default_token_file()
    owner_s.parent.mkdir(parents=True)
    owner_s.write_text("owner")
    Joined.usual().keep(HOME, "agent")
    assert owner_s.read_text() == "owner"
    assert Joined.usual().folder.is_relative_to(configuration_folder())


def test_the_agent_goes_where_it_was_joined_and_shows_its_token_to_no_other() -> None:
    assert taken() == (DEFAULT_ADDRESS, default_token_file(), None)
    joined = Joined.usual()
    joined.keep(HOME, f"secret\n{CERTIFICATE}")
    address, token_file, tls = taken()
    assert (address, token_file) == (HOME, joined.token)
    assert tls.ca == joined.ca
    assert taken(collector="127.0.0.1:6000") == ("127.0.0.1:6000", default_token_file(), None)


def test_joining_anew_leaves_nothing_of_the_one_before() -> None:
    joined = Joined.usual()
    joined.keep(HOME, f"secret\n{CERTIFICATE}")
    joined.keep("10.0.0.7:50051", "other")
    address, _, tls = taken()
    assert (address, tls) == ("10.0.0.7:50051", None)
    assert not joined.ca.exists()


def test_the_certificate_that_a_collector_was_shown_is_kept_until_another_is_joined(tmp_path: Path) -> None:
    shown = TlsFiles(ca=tmp_path / "ca", certificate=tmp_path / "mine.crt", key=tmp_path / "mine.key")
    for path in (shown.certificate, shown.key):
        assert path
        path.write_text(path.name)
    joined = Joined.usual()
    joined.keep(HOME, f"secret\n{CERTIFICATE}", shown)
    _, _, tls = taken()
    assert (tls.certificate.read_text(), tls.key.read_text()) == ("mine.crt", "mine.key")
    assert {path.stat().st_mode & 0o777 for path in joined.folder.iterdir()} == {0o600}
    other = {"client_cert": Path("c"), "client_key": Path("k")}
    assert taken(**other)[2] == TlsFiles(ca=joined.ca, certificate=Path("c"), key=Path("k"))
    joined.keep(HOME, f"secret\n{CERTIFICATE}")
    assert taken()[2] == TlsFiles(ca=joined.ca)


@pytest.mark.parametrize("given", [{"client_cert": Path("c")}, {"client_cert": Path("c"), "client_key": Path("k")}])
def test_a_client_s_certificate_without_key_or_ca_is_misuse(given: dict[str, Path]) -> None:
    with pytest.raises(MisuseError):
        taken(**given)


@pytest.mark.parametrize("text", ["", "two words", CERTIFICATE, "token\nmore", "token\n-----BEGIN PRIVATE KEY-----\n"])
def test_what_no_collector_printed_is_refused(text: str) -> None:
    with pytest.raises(GpuAgentError, match="`collector tokens create"):
        split(text)


@given(text=st.text(max_size=80))
def test_any_text_is_a_token_with_certificates_or_is_refused(text: str) -> None:
    try:
        token, certificates = split(text)
    except GpuAgentError:
        return
    assert token
    assert token in text
    assert not certificates or certificates.startswith("-----BEGIN CERTIFICATE-----")


@pytest.mark.parametrize("content", [b"\xff\xfe\x80", bytes(40), "clé".encode(), b"a\tb", b"\n"])
def test_bytes_that_no_header_carries_are_no_token_and_the_remedy_is_named(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "bin.tok"
    path.write_bytes(content)
    path.chmod(0o600)
    with pytest.raises(TokenError, match=r"bin\.tok is no token file; give another by --token-file, or join: "):
        read_token(path)
