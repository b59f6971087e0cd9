"""Settings of a connection."""

from dataclasses import dataclass, field
from typing import Any

from pairbus.amqp.frames import MIN_MAX_FRAME_SIZE


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionSettings:
    """The fields of our open, and the limits that the peer must observe."""

    container_id: str
    hostname: str | None = None
    max_frame_size: int = 65536
    channel_max: int = 255
    handle_max: int = 255
    max_links: int = 10_000
    """The number of links of all sessions."""
    max_attach_size: int = 65536
    """The size of the frame with which the peer attaches a link, in bytes: a link keeps it."""
    idle_timeout_s: float | None = None
    """Close the connection if the peer sends nothing for this time. Our open announces half of it,
    so that heartbeats arrive early enough."""
    incoming_window: int = 5000
    """The number of frames that the peer may send on a session before we renew the window."""
    outgoing_window: int = 5000
    max_buffered: int = 64 * 1024 * 1024
    """The maximum total size of incomplete messages on all links, in bytes."""
    properties: dict[Any, Any] = field(default_factory=dict)
    offered_capabilities: tuple[str, ...] = ()
    desired_capabilities: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not MIN_MAX_FRAME_SIZE <= self.max_frame_size <= 0xFFFFFFFF:
            raise ValueError(f"max_frame_size must be 512 to 4294967295, not {self.max_frame_size}")
        if self.incoming_window < 2:
            raise ValueError(f"incoming_window must be at least 2, not {self.incoming_window}")
