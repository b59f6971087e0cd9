"""A port that stays ours while nobody listens on it."""

import contextlib
import socket
import sys


def held_port(host: str, port: int = 0) -> socket.socket | None:
    """Keeps others from being given the port, until it is closed: connections are refused there,
    and whoever asks for this very port may listen. None where that cannot be done."""
    if sys.platform != "linux":  # elsewhere two sockets of one port get in each other's way
        return None
    held = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
    held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    with contextlib.suppress(OSError):  # whoever listens says why it cannot be had
        held.bind((host, port))
        return held
    held.close()
    return None
