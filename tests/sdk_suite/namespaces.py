"""The emulator as a child process with two namespaces, as the SDK's tests need them.

One namespace is for messages. The other is for the tests of the administration client, which
delete every entity that they find. The process ends with the process that started it.
"""

import contextlib
import multiprocessing
from dataclasses import dataclass
from multiprocessing.connection import Connection

from pairbus.emulator import LocalNamespace
from pairbus.emulator.auth import Right, SharedAccessRule

DOMAIN = ".servicebus.windows.net"
START_S = 60.0
RULES = {
    "listen": frozenset({Right.LISTEN}),
    "send": frozenset({Right.SEND}),
    "manage": frozenset(Right),
}
"""Shared access rules of each namespace, besides the root rule. The SDK's tests create them with
Azure Resource Manager."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Namespace:
    """A namespace of the process, by the host name that the SDK's tests use for it."""

    name: str
    port: int
    ca_file: str
    key_name: str
    key: str

    @property
    def host(self) -> str:
        return self.name + DOMAIN

    def connection_string(self, rule: str | None = None, key: str | None = None) -> str:
        return (
            f"Endpoint=sb://{self.host}/;SharedAccessKeyName={rule or self.key_name};"
            f"SharedAccessKey={key or self.key}"
        )


class Namespaces:
    """Two namespaces in a child process."""

    def __init__(self, label: str) -> None:
        context = multiprocessing.get_context("spawn")
        self._connection, child = context.Pipe()
        names = (f"messages-{label}", f"administration-{label}")
        self._process = context.Process(target=_serve, args=(child, names), daemon=True)
        self._process.start()
        child.close()
        if not self._connection.poll(START_S):
            raise RuntimeError(f"The emulator was not ready after {START_S:g} s.")
        self.messages, self.administration = self._connection.recv()

    def __iter__(self):
        return iter((self.messages, self.administration))

    def close(self) -> None:
        self._connection.close()
        self._process.join(START_S)


def _serve(connection: Connection, names: tuple[str, ...]) -> None:
    with contextlib.ExitStack() as running:
        served = [
            running.enter_context(
                LocalNamespace(
                    name,
                    host_names=[name + DOMAIN],
                    trust_bearer_tokens=True,
                    tier="standard",  # as the tests expect
                    rules=[
                        SharedAccessRule(name=rule, primary_key=f"key-of-{rule}", rights=rights)
                        for rule, rights in RULES.items()
                    ],
                )
            )
            for name in names
        ]
        connection.send([_address(namespace) for namespace in served])
        with contextlib.suppress(EOFError, ConnectionError):
            connection.recv()  # until the parent closes its end


def _address(namespace: LocalNamespace) -> Namespace:
    fields = dict(
        field.split("=", 1) for field in namespace.connection_string.rstrip(";").split(";")
    )
    return Namespace(
        name=namespace.name,
        port=namespace.port,
        ca_file=namespace.ca_file,
        key_name=fields["SharedAccessKeyName"],
        key=fields["SharedAccessKey"],
    )
