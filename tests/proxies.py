"""tinyproxy, an HTTP proxy from Debian's packages, as a process."""

import os
import re
import shutil
import socket
import subprocess
from pathlib import Path

import pytest

from pairbus.servicebus.proxy import Proxy
from tests.waiting import wait_until

HOST = "127.0.0.1"
USERNAME, PASSWORD = "someone", "a-pass.word"


class ProxyProcess:
    """A proxy on a free port. It requires a user name and a password if `protected` is True."""

    def __init__(self, folder: Path, *, protected: bool = False, allowed_port: int = 0) -> None:
        program = shutil.which("tinyproxy", path=f"{os.environ['PATH']}:/usr/sbin")
        if program is None:
            pytest.fail("tinyproxy is missing. Install the Debian package tinyproxy-bin.")
        self.port = _free_port()
        self._log = folder / f"proxy-{self.port}.log"
        configuration = folder / f"proxy-{self.port}.conf"
        lines = [
            f"Port {self.port}",
            f"Listen {HOST}",
            "Timeout 600",
            "MaxClients 50",
            "LogLevel Connect",
            f'LogFile "{self._log}"',
        ]
        if protected:
            lines.append(f"BasicAuth {USERNAME} {PASSWORD}")
        if allowed_port:
            lines.append(f"ConnectPort {allowed_port}")
        configuration.write_text("\n".join([*lines, ""]))
        self._process = subprocess.Popen([program, "-d", "-c", str(configuration)])
        wait_until(self._accepts, "the start of tinyproxy")

    def close(self) -> None:
        self._process.kill()
        self._process.wait(20)

    def options(self, *, username: str | None = None, password: str | None = None) -> Proxy:
        return Proxy(host=HOST, port=self.port, username=username, password=password)

    @property
    def targets(self) -> list[str]:
        """The hosts and ports of all CONNECT requests so far, also of those that were refused."""
        return re.findall(r": CONNECT (\S+) HTTP/1", self._log.read_text())

    def _accepts(self) -> bool:
        assert self._process.poll() is None, "tinyproxy ended"
        try:
            socket.create_connection((HOST, self.port), 1).close()
        except OSError:
            return False
        return True


def _free_port() -> int:
    with socket.create_server((HOST, 0)) as listening:
        port: int = listening.getsockname()[1]
    return port
