"""SASL (part 5, 5.3) without I/O: the client selects a mechanism, the server checks the response.

ANONYMOUS and MSSBCBS do not identify the client (on Service Bus, tokens follow over CBS). PLAIN
carries a user name and a password. EXTERNAL relies on the client certificate of TLS.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from pairbus.amqp.events import Authenticated
from pairbus.amqp.performatives import (
    SaslChallenge,
    SaslInit,
    SaslMechanisms,
    SaslOutcome,
    SaslResponse,
)
from pairbus.amqp.types import Symbol
from pairbus.errors import AmqpError, ConnectionLost, NotAuthorized, ProtocolError

SASL_OK, SASL_AUTH_FAILED = 0, 1
_OUTCOMES = {
    1: "the user name, password or certificate was not accepted",
    2: "a system error",
    3: "a permanent system error",
    4: "a temporary system error",
}

HandshakeStep = tuple[list[Any], Authenticated | AmqpError | None]
"""The frames to send, and the result if the handshake has ended."""


@dataclass(frozen=True, slots=True)
class SaslClient:
    """The mechanisms of a client in order of preference, each with its initial response."""

    # Without a hash, client options with it could not be the key of a cache of connections.
    responses: Mapping[str, bytes] = field(repr=False, hash=False)

    @classmethod
    def anonymous(cls) -> "SaslClient":
        """Return the mechanisms for tokens over CBS: MSSBCBS if it is offered, else ANONYMOUS."""
        return cls({"MSSBCBS": b"", "ANONYMOUS": b"anonymous"})

    @classmethod
    def plain(cls, name: str, password: str) -> "SaslClient":
        return cls({"PLAIN": b"\x00" + name.encode() + b"\x00" + password.encode()})

    @classmethod
    def external(cls) -> "SaslClient":
        return cls({"EXTERNAL": b""})


@dataclass(frozen=True, slots=True)
class SaslServer:
    """The mechanisms that a server offers, each with a function that checks the client's response.

    The function returns the identity of the client, or None to reject the client.
    """

    mechanisms: Mapping[str, Callable[[bytes], Any]]

    @classmethod
    def anonymous(cls) -> "SaslServer":
        """Return mechanisms that accept every client."""
        return cls({"MSSBCBS": _accept, "ANONYMOUS": _accept})


class ClientHandshake:
    """The client side of one SASL handshake."""

    def __init__(self, sasl: SaslClient, hostname: str | None) -> None:
        self._sasl = sasl
        self._hostname = hostname
        self._mechanism: str | None = None
        self._challenged = False

    def start(self) -> list[Any]:
        return []

    def receive(self, performative: Any) -> HandshakeStep:
        if isinstance(performative, SaslMechanisms) and self._mechanism is None:
            offered = performative.sasl_server_mechanisms
            for mechanism, response in self._sasl.responses.items():
                if mechanism in offered:
                    self._mechanism = mechanism
                    return [SaslInit(mechanism, response, self._hostname)], None
            return [], NotAuthorized(
                f"the server offers the SASL mechanisms {', '.join(offered) or '(none)'}, "
                f"but this client supports {', '.join(self._sasl.responses)}"
            )
        mechanism = self._mechanism or ""
        if isinstance(performative, SaslChallenge) and mechanism and not self._challenged:
            self._challenged = True
            return [SaslResponse(self._sasl.responses[mechanism])], None
        if isinstance(performative, SaslOutcome) and mechanism:
            if performative.code == SASL_OK:
                return [], Authenticated(mechanism, None)
            reason = _OUTCOMES.get(performative.code, f"unknown outcome {performative.code}")
            kind = NotAuthorized if performative.code == SASL_AUTH_FAILED else ConnectionLost
            return [], kind(f"SASL {mechanism} failed: {reason}")
        raise ProtocolError(
            f"{type(performative).__name__} is not expected at this point of the SASL handshake"
        )


class ServerHandshake:
    """The server side of one SASL handshake."""

    def __init__(self, sasl: SaslServer) -> None:
        self._sasl = sasl
        self._mechanism: str | None = None
        self._challenged = False

    def start(self) -> list[Any]:
        return [SaslMechanisms(tuple(map(Symbol, self._sasl.mechanisms)))]

    def receive(self, performative: Any) -> HandshakeStep:
        if isinstance(performative, SaslInit) and self._mechanism is None:
            self._mechanism = performative.mechanism
            if performative.initial_response is None and self._mechanism in ("PLAIN", "EXTERNAL"):
                self._challenged = True
                return [SaslChallenge(b"")], None
            return self._decide(self._mechanism, performative.initial_response or b"")
        if isinstance(performative, SaslResponse) and self._challenged and self._mechanism:
            self._challenged = False
            return self._decide(self._mechanism, performative.response)
        raise ProtocolError(
            f"{type(performative).__name__} is not expected at this point of the SASL handshake"
        )

    def _decide(self, mechanism: str, response: bytes) -> HandshakeStep:
        check = self._sasl.mechanisms.get(mechanism)
        identity = None if check is None else check(response)
        if identity is None:
            error = NotAuthorized(f"SASL {mechanism} rejected the client")
            return [SaslOutcome(SASL_AUTH_FAILED)], error
        return [SaslOutcome(SASL_OK)], Authenticated(mechanism, identity)


def _accept(response: bytes) -> str:
    return "anonymous"


def parse_plain_response(response: bytes) -> tuple[str, str] | None:
    """Return user name and password of a PLAIN response (RFC 4616), or None if it is invalid."""
    parts = response.split(b"\x00")
    if len(parts) != 3:
        return None
    try:
        return parts[1].decode(), parts[2].decode()
    except UnicodeDecodeError:
        return None
