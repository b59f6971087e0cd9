"""Choose the handler for a link that a client attaches, and check its right to attach it."""

from typing import TYPE_CHECKING

from pairbus.amqp.link import ReceiverLink, SenderLink
from pairbus.amqp.performatives import Source, Target
from pairbus.emulator.auth import Right
from pairbus.emulator.connections.incoming_links import IncomingLink
from pairbus.emulator.connections.outgoing_links import OutgoingLink
from pairbus.emulator.connections.request_links import (
    CbsNode,
    ManagementNode,
    RequestLink,
    RequestNode,
    ResponseLink,
)
from pairbus.emulator.entities.descriptions import TopicDescription
from pairbus.errors import EntityDisabled, Refused
from pairbus.servicebus import conditions
from pairbus.servicebus.entity_paths import (
    CBS_NODE,
    MANAGEMENT_NODE,
    normalize_path,
    path_from_address,
)

if TYPE_CHECKING:
    from pairbus.emulator.connections.amqp_connection import AmqpConnection


def receiving_handler(
    connection: "AmqpConnection", link: ReceiverLink
) -> IncomingLink | RequestLink:
    """Return the handler for a link on which the client sends. Raises AmqpError."""
    path = _path(link.remote.target if link.remote is not None else None)
    node = _request_node(connection, path)
    if node is not None:
        return RequestLink(connection, link, node)
    connection.runtime.faults.check_disabled(path)
    connection.authorize(path, Right.SEND)
    entity = connection.runtime.entities.get(path)
    if not entity.description.status.allows_sending:
        raise EntityDisabled(f"{path!r} is disabled for sending.")
    return IncomingLink(connection, link, entity)


def sending_handler(connection: "AmqpConnection", link: SenderLink) -> OutgoingLink | ResponseLink:
    """Return the handler for a link on which the client receives. Raises AmqpError."""
    path = _path(link.remote.source if link.remote is not None else None)
    node = _request_node(connection, path)
    if node is not None:
        return ResponseLink(connection, link, node)
    connection.runtime.faults.check_disabled(path)
    connection.authorize(path, Right.LISTEN)
    entity, queue = connection.runtime.entities.source(path)
    if isinstance(entity.description, TopicDescription):
        raise Refused(f"{path!r} is a topic. Receive from one of its subscriptions.")
    if not entity.description.status.allows_receiving:
        raise EntityDisabled(f"{path!r} is disabled for receiving.")
    return OutgoingLink(connection, link, entity, queue)


def _path(terminus: object) -> str:
    address = terminus.address if isinstance(terminus, Source | Target) else None
    if not isinstance(address, str):
        raise Refused("A link needs an address.", condition=conditions.INVALID_FIELD)
    return path_from_address(address)


def _request_node(connection: "AmqpConnection", path: str) -> RequestNode | None:
    """Return the `$cbs` or `$management` node at a path, or None if it is the path of an entity."""
    normalized = normalize_path(path)
    if normalized == CBS_NODE:
        return CbsNode(connection)
    if normalized.endswith(f"/{MANAGEMENT_NODE}"):
        entity, queue = connection.runtime.entities.source(path[: -len(MANAGEMENT_NODE) - 1])
        return ManagementNode(connection, normalized, entity, queue)
    return None
