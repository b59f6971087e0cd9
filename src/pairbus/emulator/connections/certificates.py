"""The TLS certificate of a local namespace, and the CA that clients trust for it.

Both are created together in the namespace's folder: `ca.pem`, which clients read, and `server.pem`
with the certificate and its private key, which only the owner can read. The private key of the CA
is not kept, so that trusting `ca.pem` means trusting only this certificate. A renewal creates a new
CA in the same file.
"""

import ipaddress
import os
import ssl
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path

import trustme
from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from pairbus.emulator.host_names import LOOPBACK_NAMES
from pairbus.errors import ConfigurationError

LIFETIME = timedelta(days=365)
RENEW_BEFORE = timedelta(days=30)


@dataclass(frozen=True, slots=True)
class Certificates:
    """The files of a certificate and its CA."""

    ca_file: Path
    server_file: Path

    def server_context(self) -> ssl.SSLContext:
        """Return a TLS context for the server."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.load_cert_chain(self.server_file)
        return context


def ensure_certificates(folder: Path, names: Iterable[str] = (), *, now: datetime) -> Certificates:
    """Return the certificate in a folder, valid for the loopback names and for `names`.

    An existing certificate is used. It is replaced if it is damaged, lacks a name, or expires
    within 30 days of `now`, which has a time zone. Raises ConfigurationError for a name that is
    neither a host name nor an IP address.
    """
    required = {_normalize(name) for name in (*LOOPBACK_NAMES, *names)}
    files = Certificates(folder / "ca.pem", folder / "server.pem")
    if not _is_usable(files, required, now):
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        _create(files, sorted(required), now)
    return files


def _normalize(name: str) -> str:
    try:
        return str(ipaddress.ip_address(name))
    except ValueError:
        pass
    if not name or not name.isascii() or "/" in name or "@" in name:
        raise ConfigurationError(f"{name!r} is neither an ASCII host name nor an IP address.")
    return name.lower()


def _is_usable(files: Certificates, required: set[str], now: datetime) -> bool:
    try:
        content = files.server_file.read_bytes()
        ca = x509.load_pem_x509_certificate(files.ca_file.read_bytes())
        certificate = x509.load_pem_x509_certificate(content)
        certificate.verify_directly_issued_by(ca)
        if load_pem_private_key(content, None).public_key() != certificate.public_key():
            return False
        subjects = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except (FileNotFoundError, ValueError, TypeError, InvalidSignature, x509.ExtensionNotFound):
        return False
    names = {name.lower() for name in subjects.get_values_for_type(x509.DNSName)}
    names |= {str(address) for address in subjects.get_values_for_type(x509.IPAddress)}
    return required <= names and certificate.not_valid_after_utc - RENEW_BEFORE > now


def _create(files: Certificates, names: list[str], now: datetime) -> None:
    ca = trustme.CA(organization_name="pairbus", organization_unit_name="local namespace CA")
    try:
        issued = ca.issue_cert(
            *names,
            organization_name="pairbus",
            organization_unit_name="local namespace",
            not_after=now + LIFETIME,
        )
    except ValueError as exc:
        raise ConfigurationError(
            f"A certificate for {', '.join(names)} cannot be created: {exc}"
        ) from exc
    # If the process ends between the two, they do not match, and the next start replaces both.
    _write(files.server_file, issued.private_key_and_cert_chain_pem.bytes(), mode=0o600)
    _write(files.ca_file, ca.cert_pem.bytes(), mode=0o644)


def _write(path: Path, content: bytes, *, mode: int) -> None:
    """Replace a file atomically. At no time does it have more permissions than `mode`."""
    temporary = path.with_name(f"{path.name}.{os.getpid()}.new")
    temporary.unlink(missing_ok=True)
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)
    temporary.replace(path)
