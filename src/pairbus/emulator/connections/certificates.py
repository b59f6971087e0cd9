"""A certificate for a local namespace, and the CA that clients are told to trust.

Both are made together and kept in the namespace's folder: `ca.pem`, which clients read, and
`server.pem`, certificate and private key, which only their owner can read. The CA's private key is
thrown away at once: nothing else will ever be signed with it, so trusting `ca.pem` trusts this one
certificate. When the certificate is renewed, there is a new CA in the same place.
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

from pairbus.errors import ConfigurationError

ALWAYS = ("localhost", "127.0.0.1", "::1")
LIFETIME = timedelta(days=365)
RENEW_BEFORE = timedelta(days=30)


@dataclass(frozen=True, slots=True)
class Certificates:
    """Where the files are."""

    ca_file: Path
    server_file: Path

    def server_context(self) -> ssl.SSLContext:
        """A context for the server's side of TLS."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.load_cert_chain(self.server_file)
        return context


def ensure_certificates(folder: Path, names: Iterable[str] = (), *, now: datetime) -> Certificates:
    """The certificate in this folder, for the loopback names and for `names` (hosts or addresses).

    What is there is used again; it is made new where it is missing or damaged, lacks a name, or
    ends within 30 days of `now` (aware). Raises ConfigurationError for what is no name.
    """
    wanted = {_normal(name) for name in (*ALWAYS, *names)}
    files = Certificates(folder / "ca.pem", folder / "server.pem")
    if not _usable(files, wanted, now):
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        _make(files, sorted(wanted), now)
    return files


def _normal(name: str) -> str:
    try:
        return str(ipaddress.ip_address(name))
    except ValueError:
        pass
    if not name or not name.isascii() or "/" in name or "@" in name:
        raise ConfigurationError(f"{name!r} is neither a host name in ASCII nor an address")
    return name.lower()


def _usable(files: Certificates, wanted: set[str], now: datetime) -> bool:
    try:
        own = files.server_file.read_bytes()
        ca = x509.load_pem_x509_certificate(files.ca_file.read_bytes())
        certificate = x509.load_pem_x509_certificate(own)
        certificate.verify_directly_issued_by(ca)
        if load_pem_private_key(own, None).public_key() != certificate.public_key():
            return False
        found = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except (FileNotFoundError, ValueError, TypeError, InvalidSignature, x509.ExtensionNotFound):
        return False
    names = {name.lower() for name in found.get_values_for_type(x509.DNSName)}
    names |= {str(address) for address in found.get_values_for_type(x509.IPAddress)}
    return wanted <= names and certificate.not_valid_after_utc - RENEW_BEFORE > now


def _make(files: Certificates, names: list[str], now: datetime) -> None:
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
            f"no certificate can be made for {', '.join(names)}: {exc}"
        ) from exc
    # If it ends between the two, they do not fit, and the next start makes both new.
    _write(files.server_file, issued.private_key_and_cert_chain_pem.bytes(), mode=0o600)
    _write(files.ca_file, ca.cert_pem.bytes(), mode=0o644)


def _write(path: Path, content: bytes, *, mode: int) -> None:
    """Replaces a file in one step; at no time can it be read by more than `mode` allows."""
    beside = path.with_name(f"{path.name}.{os.getpid()}.new")
    beside.unlink(missing_ok=True)
    descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)
    beside.replace(path)
