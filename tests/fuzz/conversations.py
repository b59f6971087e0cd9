"""Valid conversations, made by two engines, as what each of them hears turn by turn."""

from dataclasses import dataclass
from functools import cache

from pairbus.amqp.connection import Connection, ConnectionSettings
from pairbus.amqp.sasl import SaslClient, SaslServer, parse_plain_response
from tests.fuzz.program import Program

KINDS = ("bare", "anonymous", "plain", "small")


@dataclass(frozen=True)
class Case:
    """One engine, and what it is fed."""

    kind: str
    client: bool
    chunks: tuple[bytes, ...]

    def engine(self) -> Connection:
        return engine(self.kind, self.client)


def engine(kind: str, client: bool) -> Connection:
    """One end of a conversation of this kind."""
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
    """What the client hears, and what the server hears."""
    ends = [engine(kind, True), engine(kind, False)]
    programs = [Program(ends[0], client=True), Program(ends[1], client=False)]
    heard: list[list[bytes]] = [[], []]
    while any(end.has_data_to_send for end in ends):
        for side in (0, 1):
            said = ends[side].data_to_send(0.0)
            if said:
                heard[1 - side].append(said)
                programs[1 - side].react(ends[1 - side].receive(said, 0.0))
    return Case(kind, True, tuple(heard[0])), Case(kind, False, tuple(heard[1]))


def recorded() -> list[Case]:
    return [case for kind in KINDS for case in record(kind)]
