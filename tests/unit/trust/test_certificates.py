"""What `collector certs` makes, and what a collector takes of it."""

import os
from datetime import timedelta
from pathlib import Path

import pytest
from cryptography import x509

from gpuagent_collector.times import utc_now
from gpuagent_collector.trust.authority import LEAF_LIFETIME, Authority, expires_at, hosts_of
from gpuagent_collector.trust.private_files import write_private
from gpuagent_collector.trust.serving import (
    CertificateFolder,
    Encryption,
    ServerCertificate,
    TlsSettings,
    choose_certificates,
)
from gpuagent_common.address import Address
from gpuagent_common.errors import GpuAgentError, MisuseError

HOSTS = ["collector.example.org", "10.0.0.7", "::1"]
LOOPBACK, NETWORK = Address(host="127.0.0.1", port=0), Address(host="0.0.0.0", port=0)  # noqa: S104 - nothing listens


@pytest.fixture
def folder(tmp_path: Path) -> CertificateFolder:
    folder = CertificateFolder(path=tmp_path / "new" / "tls")
    folder.init(HOSTS)
    return folder


def asked(tls: TlsSettings | None = None, client_ca: Path | None = None, *, insecure: bool = False) -> Encryption:
    certificate, key = (tls.certificate, tls.key) if tls else (None, None)
    return Encryption(tls_cert=certificate, tls_key=key, tls_client_ca=client_ca, insecure=insecure)


def test_nobody_else_can_read_what_is_made(folder: CertificateFolder) -> None:
    folder.issue_client("gpu-7")
    assert {path.stat().st_mode & 0o777 for path in folder.path.rglob("*") if path.is_file()} == {0o600}
    folders = (folder.path, folder.path.parent, folder.path / "nodes")
    assert {path.stat().st_mode & 0o777 for path in folders} == {0o700}


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder to another user")
@pytest.mark.parametrize(("owner", "mode"), [(65_533, 0o755), (0, 0o777)])
def test_no_ca_is_made_where_another_user_could_replace_it(tmp_path: Path, owner: int, mode: int) -> None:
    place = tmp_path / "tls"
    place.mkdir()
    place.chmod(mode)
    os.chown(place, owner, owner)
    with pytest.raises(GpuAgentError, match="others could replace"):
        CertificateFolder(path=place).init(HOSTS)
    assert list(place.iterdir()) == []


def test_a_server_s_certificate_is_for_its_names_and_comes_from_the_ca(folder: CertificateFolder) -> None:
    certificate = folder.server.certificate.read_bytes()
    assert hosts_of(certificate) == HOSTS
    authority = x509.load_pem_x509_certificate(folder.ca.read_bytes())
    x509.load_pem_x509_certificate(certificate).verify_directly_issued_by(authority)
    assert b"PRIVATE" not in certificate + folder.ca.read_bytes()


def test_a_ca_is_never_replaced_and_rotating_keeps_it_and_adds_names(folder: CertificateFolder) -> None:
    ca, before = folder.ca.read_bytes(), folder.server.key.read_bytes()
    with pytest.raises(MisuseError, match="collector certs rotate"):
        folder.init(HOSTS)
    assert folder.ca.read_bytes() == ca
    assert folder.rotate(["10.0.0.8"]) == [*HOSTS, "10.0.0.8"]
    assert folder.ca.read_bytes() == ca
    assert folder.server.key.read_bytes() != before


@pytest.mark.parametrize(
    "host", ["", "a b", "host:1", "http://host", "ümlaut", "*.example.org", "nosuch..host", "-a.b", "a.", "a" * 64]
)
def test_what_is_no_host_is_misuse(host: str) -> None:
    with pytest.raises(MisuseError, match="--host takes"):
        Authority.create().issue_server(["ok", host])


@pytest.mark.parametrize("name", ["", "../ca", "a/b", ".hidden", "a\nb"])
def test_what_is_no_node_s_name_is_misuse(folder: CertificateFolder, name: str) -> None:
    with pytest.raises(MisuseError):
        folder.issue_client(name)


def test_a_missing_ca_and_one_whose_key_others_can_read_sign_nothing(folder: CertificateFolder, tmp_path: Path) -> None:
    with pytest.raises(MisuseError, match="collector certs init"):
        CertificateFolder(path=tmp_path).rotate([])
    (folder.path / "ca.key").chmod(0o644)
    with pytest.raises(GpuAgentError, match="chmod 600"):
        folder.rotate([])


def test_new_files_are_taken_up_once_they_fit_together(folder: CertificateFolder) -> None:
    served = ServerCertificate(folder.server)
    context = served.ssl_context()
    other = Authority.load(Authority.create().pair).issue_server(["elsewhere"])
    write_private(folder.server.key, other.key)
    served.renew(context)
    assert str(served).endswith(", ".join(HOSTS)), "a key without its certificate was taken"
    write_private(folder.server.certificate, other.certificate)
    served.renew(context)
    assert str(served).endswith("for elsewhere")
    folder.server.certificate.unlink()
    served.renew(context)
    assert str(served).endswith("for elsewhere")


def test_a_certificate_that_has_expired_is_refused_and_one_that_soon_does_is_told(folder: CertificateFolder) -> None:
    end = expires_at(folder.server.certificate.read_bytes())
    assert timedelta(0) < LEAF_LIFETIME - (end - utc_now()) < timedelta(minutes=5)
    assert ServerCertificate(folder.server).expires_soon() is None
    assert ServerCertificate(folder.server, now=lambda: end - timedelta(days=3)).expires_soon() == end
    with pytest.raises(GpuAgentError, match="has expired"):
        ServerCertificate(folder.server, now=lambda: end)


def test_what_cannot_be_served_is_refused_in_words(folder: CertificateFolder, tmp_path: Path) -> None:
    server = folder.server
    stranger = folder.issue_client("stranger")
    text = tmp_path / "text"
    text.write_text("no PEM")
    text.chmod(0o600)
    cases = [
        (TlsSettings(certificate=server.certificate, key=stranger.key), "is not the key of"),
        (TlsSettings(certificate=server.certificate, key=text), "no PEM certificate and key"),
        (TlsSettings(certificate=tmp_path / "absent", key=server.key), "absent: No such file"),
        (TlsSettings(certificate=server.certificate, key=server.key, client_ca=text), "no certificate in"),
    ]
    for settings, words in cases:
        with pytest.raises(GpuAgentError, match=words):
            ServerCertificate(settings)
    server.key.chmod(0o604)
    with pytest.raises(GpuAgentError, match="everybody can read"):
        ServerCertificate(server)


def test_other_machines_reach_no_collector_that_is_not_encrypted() -> None:
    for listen, http in ((NETWORK, None), (LOOPBACK, NETWORK)):
        with pytest.raises(MisuseError, match="without TLS"):
            choose_certificates(listen, http, asked())
        assert choose_certificates(listen, http, asked(insecure=True)).certificate is None


def test_certificates_of_certs_init_are_used_where_other_machines_reach_and_nowhere_else() -> None:
    CertificateFolder.usual().init(HOSTS)
    assert choose_certificates(LOOPBACK, LOOPBACK, asked()).certificate is None
    shown = choose_certificates(NETWORK, LOOPBACK, asked())
    assert shown.grpc
    assert shown.http is None
    assert choose_certificates(LOOPBACK, NETWORK, asked()).http
    assert choose_certificates(NETWORK, None, asked(insecure=True)).certificate is None


def test_certificates_that_are_named_are_used_everywhere(folder: CertificateFolder) -> None:
    shown = choose_certificates(LOOPBACK, LOOPBACK, asked(folder.server))
    assert shown.grpc is shown.http is shown.certificate
    assert shown.certificate is not None


def test_options_that_contradict_each_other_are_misuse(folder: CertificateFolder) -> None:
    half = Encryption(tls_cert=folder.server.certificate, tls_key=None, tls_client_ca=None, insecure=False)
    both = asked(folder.server, insecure=True)
    cases = ((half, "belong together"), (both, "contradict"), (asked(client_ca=folder.ca), "is for TLS"))
    for encryption, words in cases:
        with pytest.raises(MisuseError, match=words):
            choose_certificates(LOOPBACK, None, encryption)
