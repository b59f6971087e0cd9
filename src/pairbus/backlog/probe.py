"""Probe namespaces: connect, and authorize with a token. A probe is bounded in time, the lookup of
the host name included."""

import threading
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pairbus.amqp.client import ClientOptions
from pairbus.backlog.peek import connected
from pairbus.errors import AmqpError, EntityNotFound, NotAuthorized, PairbusError
from pairbus.servicebus.addresses import format_address

GRACE_S = 2.0
"""The time by which a probe may exceed its timeout before it is abandoned, for example to close
its connection."""


@dataclass(frozen=True, slots=True)
class ProbeResult:
    """The result of a probe of a namespace."""

    host: str
    problem: str | None = None
    """The reason why the probe failed, or None if it succeeded."""
    unauthorized: bool = False
    """True if the namespace is reachable and rejected the token."""

    @property
    def available(self) -> bool:
        return self.problem is None

    def to_json(self) -> dict[str, Any]:
        return {
            "host": self.host,
            "available": self.available,
            "unauthorized": self.unauthorized,
            "problem": self.problem,
        }


def probe_namespaces(
    namespaces: Mapping[str, tuple[ClientOptions, str]],
) -> dict[str, ProbeResult]:
    """Probe namespaces at the same time. The values are the options for the connection and the path
    that the token is for."""
    results: dict[str, ProbeResult] = {}

    def probe(role: str, options: ClientOptions, path: str) -> None:
        results[role] = probe_namespace(options, path)

    threads = [
        # Daemon threads: a thread that waits for a name server must not keep the process alive.
        threading.Thread(
            target=probe, args=(role, *arguments), name=f"probe of the {role}", daemon=True
        )
        for role, arguments in namespaces.items()
    ]
    for thread in threads:
        thread.start()
    for thread, (options, _) in zip(threads, namespaces.values(), strict=True):
        thread.join(options.operation_timeout_s + GRACE_S)
    return {
        role: results.get(role)
        or ProbeResult(
            format_address(options.host, options.port),
            f"no response within {options.operation_timeout_s:g} s",
        )
        for role, (options, _) in namespaces.items()
    }


def probe_namespace(options: ClientOptions, path: str) -> ProbeResult:
    """Connect and authorize for a path, together within the operation timeout. The path need not
    exist: Service Bus refuses a token for it, but has answered."""
    host = format_address(options.host, options.port)
    try:
        with connected(options) as client:
            deadline = client.deadline(None)
            client.connect(options.operation_timeout_s)
            client.authorize(path, deadline)
    except EntityNotFound:
        return ProbeResult(host)
    except AmqpError as exc:
        return ProbeResult(host, exc.description, unauthorized=isinstance(exc, NotAuthorized))
    except PairbusError as exc:
        return ProbeResult(host, str(exc))
    return ProbeResult(host)
