"""Protocol violations by a peer, by the endpoint that they end.

A LinkError ends one link, a SessionError ends one session, and any other ProtocolError ends the
connection.
"""

from typing import TYPE_CHECKING

from pairbus.errors import ProtocolError

if TYPE_CHECKING:
    from pairbus.amqp.link import Link


class LinkError(ProtocolError):
    """Raised for a violation that ends one link."""

    def __init__(self, link: "Link", condition: str, description: str) -> None:
        super().__init__(description, condition=condition)
        self.link = link


class SessionError(ProtocolError):
    """Raised for a violation that ends one session."""

    def __init__(self, condition: str, description: str) -> None:
        super().__init__(description, condition=condition)
