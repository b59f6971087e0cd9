"""Valid conversations between two engines, recorded as the data that each of them receives."""

from dataclasses import dataclass
from functools import cache

from pairbus.amqp.connection import Connection
from pairbus.amqp.sasl import SaslClient, SaslServer, parse_plain_response
from pairbus.amqp.settings import ConnectionSettings
from tests.fuzz.application import Application

KINDS = ("bare", "anonymous", "plain", "small")


@dataclass(frozen=True)
class Case:
    """A configuration of an engine, and the chunks of data that it receives."""

    kind: str
    client: bool
    chunks: tuple[bytes, ...]

    def engine(self) -> Connection:
        return engine(self.kind, self.client)


def engine(kind: str, client: bool) -> Connection:
    """Return an engine for this kind of conversation."""
    small = kind == "small"
    settings = ConnectionSettings(
        container_id="client" if client else "server",
        max_frame_size=512 if small else 4096,
        channel_max=7,
        handle_max=7,
        idle_timeout_s=60,
        incoming_window=3 if small else 100,
        max_buffered=20_000,
    )
    sasl: SaslClient | SaslServer | None = None
    if kind == "anonymous":
        sasl = SaslClient.anonymous() if client else SaslServer.anonymous()
    elif kind == "plain":
        sasl = (
            SaslClient.plain("me", "secret")
            if client
            else SaslServer({"PLAIN": parse_plain_response})
        )
    return Connection(settings, sasl=sasl, client=client, now=0.0)


@cache
def record(kind: str) -> tuple[Case, Case]:
    """Return the data that the client receives, and the data that the server receives."""
    engines = [engine(kind, True), engine(kind, False)]
    applications = [Application(engines[0], client=True), Application(engines[1], client=False)]
    received: list[list[bytes]] = [[], []]
    while any(engine.has_data_to_send for engine in engines):
        for side, peer in ((0, 1), (1, 0)):
            data = engines[side].data_to_send(0.0)
            if data:
                received[peer].append(data)
                applications[peer].react(engines[peer].receive(data, 0.0))
    return Case(kind, True, tuple(received[0])), Case(kind, False, tuple(received[1]))


def recorded() -> list[Case]:
    """Return both sides of a conversation of each kind."""
    return [case for kind in KINDS for case in record(kind)]
