"""What a peer did wrong, by how much of the talk it ends. A plain ProtocolError ends all of it."""

from typing import TYPE_CHECKING

from pairbus.errors import ProtocolError

if TYPE_CHECKING:
    from pairbus.amqp.link import Link


class LinkError(ProtocolError):
    """Ends one link."""

    def __init__(self, link: "Link", condition: str, description: str) -> None:
        super().__init__(description, condition=condition)
        self.link = link


class SessionError(ProtocolError):
    """Ends one session."""

    def __init__(self, condition: str, description: str) -> None:
        super().__init__(description, condition=condition)
