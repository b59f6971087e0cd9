"""The channels of a connection, and the session on each."""

from typing import TYPE_CHECKING

from pairbus.amqp.events import Event
from pairbus.amqp.performatives import Begin
from pairbus.amqp.session import Session
from pairbus.errors import ProtocolError
from pairbus.servicebus import conditions

if TYPE_CHECKING:
    from pairbus.amqp.connection import Connection


class Channels:
    """The sessions of a connection by our channel, and by the channel of the peer."""

    def __init__(self, connection: "Connection") -> None:
        self.local: dict[int, Session] = {}
        self.remote: dict[int, Session] = {}
        self._connection = connection
        self._ended: set[int] = set()

    @property
    def channel_max(self) -> int:
        """The highest channel that we may use."""
        limit, remote = self._connection.settings.channel_max, self._connection.remote
        return limit if remote is None else min(limit, remote.channel_max)

    def new_session(self) -> Session | None:
        """Return a new session on a free channel, or None if all channels are in use."""
        channel = len(self.local)
        if channel in self.local:
            channel = next(number for number in range(channel) if number not in self.local)
        if channel > self.channel_max:
            return None
        session = self.local[channel] = Session(self._connection, channel)
        return session

    def on_begin(self, channel: int, begin: Begin, events: list[Event]) -> None:
        """Process the peer's begin: the answer to ours, or the begin of a new session."""
        if channel > self._connection.settings.channel_max:
            raise ProtocolError(
                f"channel {channel} exceeds the maximum", condition=conditions.FRAMING_ERROR
            )
        if channel in self.remote:
            raise ProtocolError(f"a second begin arrived on channel {channel}")
        if begin.remote_channel is not None:
            session = self.local.get(begin.remote_channel)
            if session is None or session.begun:
                raise ProtocolError(
                    f"a begin answers channel {begin.remote_channel}, which did not begin a session"
                )
        else:
            session = self.new_session()
            if session is None:
                raise ProtocolError(
                    "the connection has too many sessions",
                    condition=conditions.RESOURCE_LIMIT_EXCEEDED,
                )
            session.begin(channel)
        self._ended.discard(channel)
        self.remote[channel] = session
        session.on_begin(begin, channel, events)

    def remove(self, session: Session) -> None:
        """Remove a session that both peers ended."""
        if self.local.pop(session.channel, None) is not None:
            self._connection.link_count -= len(session.links)
        if session.remote_channel is not None:
            self.remote.pop(session.remote_channel, None)
            self._ended.add(session.remote_channel)

    def has_ended(self, channel: int) -> bool:
        """Return True if the peer ended a session on this channel and did not begin another."""
        return channel in self._ended

    def mark_ended(self) -> None:
        """Record that all sessions ended with the connection."""
        for session in {*self.local.values(), *self.remote.values()}:
            session.mark_ended()
