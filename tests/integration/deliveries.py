"""Deliveries to the local namespaces, as the emulator received them."""

from typing import Any, NamedTuple

import pytest

from pairbus.amqp.sections import Message
from pairbus.emulator.connections.incoming_links import IncomingLink
from pairbus.emulator.connections.request_links import ManagementNode, RequestLink
from pairbus.emulator.namespace import LocalNamespace


class Delivery(NamedTuple):
    """A transfer or a management request that reached a namespace."""

    path: str
    message_format: int | None
    payload: bytes


class Deliveries:
    """Records all deliveries to links of the emulator."""

    def __init__(self, patches: pytest.MonkeyPatch) -> None:
        self._recorded: list[tuple[Any, Delivery]] = []
        self._returned: dict[tuple[str, str], int] = {}
        on_link, on_node = IncomingLink.on_delivery, RequestLink.on_delivery

        def link(incoming: IncomingLink, delivery: Any) -> None:
            made = Delivery(incoming.path, delivery.message_format, bytes(delivery.payload))
            self._recorded.append((incoming.runtime, made))
            on_link(incoming, delivery)

        def node(incoming: RequestLink, delivery: Any) -> None:
            if isinstance(incoming.node, ManagementNode):
                request = Message.parse(bytes(delivery.payload))
                request.edit_application_properties({}, ["associated-link-name"])  # it is random
                content = request.application_properties + request.body
                made = Delivery(incoming.node.entity.path, None, content)
                self._recorded.append((incoming.connection.runtime, made))
            on_node(incoming, delivery)

        patches.setattr(IncomingLink, "on_delivery", link)
        patches.setattr(RequestLink, "on_delivery", node)

    def new(self, namespace: LocalNamespace, path: str) -> list[Delivery]:
        """Return the deliveries to an entity since the last call, in order."""
        core = namespace.call(lambda core: core)
        found = [made for of, made in self._recorded if of is core and made.path == path]
        returned = self._returned.get((namespace.name, path), 0)
        self._returned[namespace.name, path] = len(found)
        return found[returned:]
