"""Network namespaces: machines with an address of their own, on this machine. They need root."""

import os
import subprocess


class NetworkNamespace:
    """A network namespace that reaches this machine at `host`, until the end of a `with` block."""

    def __init__(self, index: int) -> None:
        net = os.getpid() % 250 + 1
        self.name = f"pairbus-{os.getpid()}-{index}"
        self.host = f"10.231.{net}.{4 * index + 1}"
        """The address of this machine, as seen from the namespace."""
        self.address = f"10.231.{net}.{4 * index + 2}"
        self._link = f"pb{os.getpid()}x{index}"

    @property
    def prefix(self) -> tuple[str, ...]:
        """The start of a command that runs in the namespace."""
        return ("ip", "netns", "exec", self.name)

    def __enter__(self) -> "NetworkNamespace":
        inner = f"{self._link}p"
        ip("netns", "add", self.name)
        ip("link", "add", self._link, "type", "veth", "peer", "name", inner)
        ip("link", "set", inner, "netns", self.name)
        ip("addr", "add", f"{self.host}/30", "dev", self._link)
        ip("link", "set", self._link, "up")
        ip("-n", self.name, "addr", "add", f"{self.address}/30", "dev", inner)
        ip("-n", self.name, "link", "set", inner, "up")
        ip("-n", self.name, "link", "set", "lo", "up")
        ip("-n", self.name, "route", "add", "default", "via", self.host)
        return self

    def connect(self, other: "NetworkNamespace") -> None:
        """Let two namespaces reach each other, without forwarding by this machine."""
        ip("link", "add", f"{self._link}c", "type", "veth", "peer", "name", f"{other._link}c")
        pair = ((self, other), (other, self))
        for here, _ in pair:
            ip("link", "set", f"{here._link}c", "netns", here.name)
            ip("-n", here.name, "link", "set", f"{here._link}c", "up")
        for here, there in pair:
            route = (there.address, "dev", f"{here._link}c", "src", here.address)
            ip("-n", here.name, "route", "add", *route)

    def __exit__(self, *exc: object) -> None:
        ip("link", "del", self._link)
        ip("netns", "del", self.name)


def ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True)
