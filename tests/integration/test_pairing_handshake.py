"""The TLS handshakes of paired clients."""

import contextlib
import os
import resource
import socket
import ssl

from pairbus.emulator import LocalNamespace
from pairbus.pairing.sdk import InterruptibleHandshake

SELECT_LIMIT = 1024
"""`select.select` refuses file descriptors from this number on."""


def test_process_with_many_open_files_can_connect() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 2 * SELECT_LIMIT), hard))
    with contextlib.ExitStack() as resources:
        resources.callback(resource.setrlimit, resource.RLIMIT_NOFILE, (soft, hard))
        namespace = resources.enter_context(LocalNamespace("orders"))
        context = ssl.create_default_context(cafile=namespace.ca_file)
        for _ in range(SELECT_LIMIT):
            resources.callback(os.close, os.open(os.devnull, os.O_RDONLY))
        sock = resources.enter_context(socket.create_connection(("localhost", namespace.port), 20))
        assert sock.fileno() >= SELECT_LIMIT

        handshake = InterruptibleHandshake(context)
        with handshake.wrap_socket(sock, server_hostname="localhost") as wrapped:
            assert wrapped.version() is not None
