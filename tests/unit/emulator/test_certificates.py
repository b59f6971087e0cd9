"""Certificates of a local namespace are created once, used again, and renewed when needed."""

import ssl
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509

from pairbus.emulator.connections.certificates import Certificates, ensure_certificates
from pairbus.errors import ConfigurationError

NOW = datetime.now(UTC)


def handshake(files: Certificates, name: str, ca_file: Path | None = None) -> None:
    """Perform a TLS handshake in memory. Raises ssl.SSLError if the client does not trust it."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    server = files.server_context().wrap_bio(to_server, to_client, server_side=True)
    trusting = ssl.create_default_context(cafile=str(ca_file or files.ca_file))
    client = trusting.wrap_bio(to_client, to_server, server_hostname=name)
    waiting = [client, server]
    for _ in range(10):
        for end in list(waiting):
            try:
                end.do_handshake()
                waiting.remove(end)
            except ssl.SSLWantReadError:
                pass
        if not waiting:
            return
    raise AssertionError("the handshake does not end")


@pytest.mark.parametrize("name", ["localhost", "127.0.0.1", "::1", "emulator.example", "10.1.2.3"])
def test_client_with_the_ca_file_trusts_every_name(tmp_path: Path, name: str):
    handshake(ensure_certificates(tmp_path, ["emulator.example", "10.1.2.3"], now=NOW), name)


def test_client_trusts_no_other_name_and_no_other_ca(tmp_path: Path):
    files = ensure_certificates(tmp_path / "a", now=NOW)
    other = ensure_certificates(tmp_path / "b", now=NOW)

    with pytest.raises(ssl.SSLCertVerificationError, match="Hostname mismatch"):
        handshake(files, "emulator.example")
    with pytest.raises(ssl.SSLCertVerificationError):
        handshake(files, "localhost", ca_file=other.ca_file)


def test_private_key_is_readable_by_its_owner_only_and_the_ca_key_is_not_kept(tmp_path: Path):
    files = ensure_certificates(tmp_path / "new" / "folder", now=NOW)

    assert files.server_file.stat().st_mode & 0o777 == 0o600
    assert files.ca_file.parent.stat().st_mode & 0o777 == 0o700
    assert sorted(files.ca_file.parent.iterdir()) == [files.ca_file, files.server_file]
    assert b"PRIVATE KEY" not in files.ca_file.read_bytes()
    assert files.server_file.read_bytes().count(b"BEGIN EC PRIVATE KEY") == 1


def contents(files: Certificates) -> tuple[bytes, bytes]:
    return files.ca_file.read_bytes(), files.server_file.read_bytes()


def test_existing_certificate_is_used_again(tmp_path: Path):
    before = contents(ensure_certificates(tmp_path, ["Emulator.Example", "0:0::1"], now=NOW))

    for names in ([], ["emulator.example"], ["::1", "LOCALHOST"]):
        assert contents(ensure_certificates(tmp_path, names, now=NOW)) == before


@pytest.mark.parametrize(
    ("later", "renewed"),
    [(timedelta(days=334), False), (timedelta(days=336), True), (timedelta(days=400), True)],
)
def test_certificate_that_expires_soon_is_renewed(tmp_path: Path, later: timedelta, renewed: bool):
    before = contents(ensure_certificates(tmp_path, now=NOW))

    after = contents(ensure_certificates(tmp_path, now=NOW + later))

    assert (after != before) is renewed


def test_certificate_that_lacks_a_name_is_renewed(tmp_path: Path):
    before = contents(ensure_certificates(tmp_path, now=NOW))

    files = ensure_certificates(tmp_path, ["emulator.example"], now=NOW)

    assert contents(files) != before
    handshake(files, "emulator.example")


@pytest.mark.parametrize("damage", ["missing", "empty", "another's", "without key", "other key"])
@pytest.mark.parametrize("file_name", ["ca.pem", "server.pem"])
def test_damaged_files_are_replaced(tmp_path: Path, file_name: str, damage: str):
    files = ensure_certificates(tmp_path / "a", now=NOW)
    other = ensure_certificates(tmp_path / "b", now=NOW)
    path = tmp_path / "a" / file_name
    own, foreign = path.read_bytes(), (other.ca_file.parent / file_name).read_bytes()
    begin = b"-----BEGIN CERTIFICATE-----"
    match damage:
        case "missing":
            path.unlink()
        case "empty":
            path.write_bytes(b"")
        case "another's":
            path.write_bytes(foreign)
        case "without key":
            path.write_bytes(own[own.index(begin) :] if file_name == "server.pem" else b"x")
        case "other key":
            path.write_bytes(foreign[: foreign.index(begin)] + own[own.index(begin) :] + b"\n")
            if file_name == "ca.pem":
                path.write_bytes(b"\xff")

    handshake(ensure_certificates(tmp_path / "a", now=NOW), "localhost")
    assert contents(files)[0] != b""


def test_mismatched_files_are_replaced_by_the_next_start(tmp_path: Path):
    files = ensure_certificates(tmp_path, now=NOW)
    old_ca = files.ca_file.read_bytes()
    ensure_certificates(tmp_path, ["new.example"], now=NOW)
    files.ca_file.write_bytes(old_ca)

    handshake(ensure_certificates(tmp_path, ["new.example"], now=NOW), "new.example")


def test_certificate_is_valid_for_a_year(tmp_path: Path):
    files = ensure_certificates(tmp_path, now=NOW)

    certificate = x509.load_pem_x509_certificate(files.server_file.read_bytes())

    lasts = certificate.not_valid_after_utc - NOW
    assert timedelta(days=364) < lasts <= timedelta(days=365)


@pytest.mark.parametrize("name", ["", "a b", "a_b", "10.0.0.0/8", "x@y", "ä.example", "x" * 300])
def test_invalid_name_is_refused_and_nothing_is_written(tmp_path: Path, name: str):
    with pytest.raises(ConfigurationError):
        ensure_certificates(tmp_path, [name], now=NOW)

    assert list(tmp_path.iterdir()) == []
